// Curves over time.
import uPlot from "uplot";
export { uPlot };
