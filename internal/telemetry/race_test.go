//go:build race

package telemetry

// lineAllocations are those of a log line. The race detector makes pools forget.
const lineAllocations = 6
