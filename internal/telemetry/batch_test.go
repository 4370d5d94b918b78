package telemetry

import (
	"strings"
	"testing"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/pipeline"
)

func TestBatchLine(t *testing.T) {
	var w output
	log, done := logger(t, &w, "info", "json")
	c := New(Options{Log: log}).Consumer("ORDERS", "worker")
	c.Batched(&pipeline.Batch{Messages: 9, Bytes: 90, First: 3, Last: 12, Status: 200, Error: "over\n<load>", Duration: time.Millisecond, Ack: 5, Retry: 1, DLQ: 1, Drop: 1, Again: 1})
	c.Batched(&pipeline.Batch{Messages: 1, Status: 200})
	done()
	first, second, _ := strings.Cut(w.String(), "\n")
	want := `"level":"INFO","msg":"batch","stream":"ORDERS","consumer":"worker","messages":9,"bytes":90,"first":3,"last":12,"ack":5,"retry":1,"dlq":1,"drop":1,"again":1,"status":200,"duration":"1ms","error":"over\n<load>"}`
	if !strings.HasSuffix(first, want) || strings.Contains(second, "error") || strings.Count(second, "\n") != 1 {
		t.Error(w.String())
	}
}

// Of a batch each message that fails has its line, and one that passes only at level debug.
func TestLinesOfABatch(t *testing.T) {
	for result, least := range map[pipeline.Result]string{pipeline.ResultAck: "debug", pipeline.ResultRetry: "info", pipeline.ResultDrop: "info", pipeline.ResultDLQ: "warn"} {
		for _, level := range []string{"debug", "info", "warn"} {
			shown := least == level || level == "debug" || least == "warn"
			if l := line(t, level, "json", &pipeline.Settled{Batched: true, Result: result}); (l != "") != shown {
				t.Errorf("%s at level %s: %q", result, level, l)
			}
		}
	}
}
