"""Which site backs up which unit: never itself, another machine if there is one, a site with room; and algorithm 2 (HW 4.4)."""

from __future__ import annotations

from evenflow.policy.backups import Backed, Reassigned, Sites, reassign, volunteers

FIVE = Sites({site: f"host{site}" for site in range(1, 6)})


def backed(number: int, primary: int, backup: int | None) -> Backed:
    return Backed(number, primary, backup, recovery_s=1.0, work_s=1.0, image_bytes=100)


def ring(site: int, by: int) -> int:
    return (site - 1 + by) % 5 + 1


def test_units_without_a_backup_are_spread_over_all_other_sites():
    units = [backed(number, 1, None) for number in range(8)]
    found = volunteers(units, FIVE)
    assert sorted(each.backup for each in found) == [2, 2, 3, 3, 4, 4, 5, 5]
    assert volunteers(units, FIVE) == found


def test_the_units_of_a_backup_that_is_gone_get_another_and_the_others_keep_theirs():
    units = [backed(0, 1, 2), backed(1, 1, 9), backed(2, 1, 3)]
    assert volunteers(units, FIVE) == (Reassigned(1, 9, 4),)


def test_a_site_alone_backs_nothing_up():
    assert volunteers([backed(0, 1, None)], Sites({1: "a"})) == ()
    assert reassign([backed(0, 1, None)], Sites({1: "a"})) == ()


def test_another_machine_is_chosen_if_there_is_one_and_another_site_if_there_is_none():
    assert volunteers([backed(0, 1, None)], Sites({1: "a", 2: "a", 3: "b"})) == (Reassigned(0, None, 3),)
    assert volunteers([backed(0, 1, None)], Sites({1: "a", 2: "a"})) == (Reassigned(0, None, 2),)


def test_a_site_without_memory_for_the_image_is_not_chosen():
    units = [backed(0, 1, None), backed(1, 1, None)]
    assert {each.backup for each in volunteers(units, Sites({1: "a", 2: "b", 3: "c"}, {2: 99}))} == {3}
    # Room for one image is room for one.
    assert [each.backup for each in volunteers(units, Sites({1: "a", 2: "b"}, {2: 150}))] == [2]
    assert volunteers(units, Sites({1: "a", 2: "b"}, {2: 0})) == ()


def even() -> list[Backed]:
    """Every site has four units, one at each other site."""
    return [backed(10 * site + by, site, ring(site, by)) for site in range(1, 6) for by in range(1, 5)]


def test_backups_that_are_even_stay():
    assert reassign(even(), FIVE) == ()


def test_a_site_whose_units_are_backed_up_unevenly_moves_some_to_the_backup_with_least():
    # Figure 4.4a: site 1 backs up all of site 2's but one.
    units = [unit for unit in even() if unit.primary != 2] + [backed(20, 2, 1), backed(21, 2, 1), backed(22, 2, 1), backed(23, 2, 4)]
    assert reassign(units, FIVE) == (Reassigned(20, 1, 3),)


def test_a_site_that_backs_up_too_much_is_relieved_by_another():
    # Figure 4.4b: site 2 has two images of site 5 and is slow with its own, so each of its own recoveries takes longer than others'.
    slow = [Backed(unit.number, 2, unit.backup, 4.0, 1.0) if unit.primary == 2 else unit for unit in even()]
    units = [unit for unit in slow if unit.primary != 5] + [backed(50, 5, 2), backed(51, 5, 2), backed(52, 5, 3), backed(53, 5, 2)]
    (moved,) = reassign(units, FIVE)
    assert moved.before == 2 and moved.unit in (50, 51, 53)


def test_units_do_not_move_where_there_is_no_memory_for_them():
    units = [unit for unit in even() if unit.primary != 2] + [backed(20, 2, 1), backed(21, 2, 1), backed(22, 2, 1), backed(23, 2, 4)]
    assert reassign(units, Sites(FIVE.host, {3: 50})) == ()
    assert reassign(units, Sites({**FIVE.host, 3: "host2"})) == ()


def test_reassigning_again_and_again_ends():
    units = [backed(number, 1, 2) for number in range(8)]
    for _ in range(20):
        moves = {moved.unit: moved.backup for moved in reassign(units, FIVE)}
        if not moves:
            break
        units = [backed(unit.number, 1, moves.get(unit.number, unit.backup)) for unit in units]
    assert sorted(unit.backup or 0 for unit in units) == [2, 2, 3, 3, 4, 4, 5, 5]
