//go:build !race

package telemetry

// lineAllocations are those of a log line: the attributes beyond slog's five, and the durations.
const lineAllocations = 2
