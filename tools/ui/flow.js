// React, React Flow and htm in one file: what draws the network.
import * as React from "react";
import { createRoot } from "react-dom/client";
import { flushSync } from "react-dom";
import htm from "htm";

export { React, createRoot, flushSync };
export const html = htm.bind(React.createElement);
export {
  ReactFlow, ReactFlowProvider, Background, BackgroundVariant, BaseEdge, Controls, EdgeLabelRenderer, Handle, MiniMap, Panel, Position,
  MarkerType, ViewportPortal, applyEdgeChanges, applyNodeChanges, addEdge, getBezierPath, getSmoothStepPath, useEdgesState, useNodesState,
  useReactFlow, useStore, useStoreApi, useUpdateNodeInternals, useViewport, useNodesInitialized, useOnViewportChange, useConnection,
} from "@xyflow/react";
