package policy

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDecide(t *testing.T) {
	retry := RetryConfig{Initial: time.Second, Multiplier: 2, Max: time.Minute, Jitter: 0.5, RetryAfterMax: 10 * time.Minute}
	limited := Policy{MaxDeliver: 10, MaxAge: time.Hour, Retry: retry}
	unlimited := Policy{Retry: retry}
	answered := func(status int) Outcome { return Outcome{Kind: Answered, Status: status} }
	action := func(status int, v Verdict) Outcome { return Outcome{Kind: Answered, Status: status, Action: v} }

	for name, c := range map[string]struct {
		policy  Policy
		outcome Outcome
		attempt Attempt
		want    Decision
	}{
		"2xx":                                 {limited, answered(204), Attempt{Number: 1}, Decision{Verdict: Ack}},
		"5xx":                                 {limited, answered(500), Attempt{Number: 1}, Decision{Verdict: Retry, Delay: 500 * time.Millisecond}},
		"4xx":                                 {limited, answered(400), Attempt{Number: 1}, Decision{Verdict: DLQ, Reason: ReasonRejected}},
		"action beats 2xx":                    {limited, action(200, DLQ), Attempt{Number: 1}, Decision{Verdict: DLQ, Reason: ReasonRejected}},
		"action beats 4xx":                    {limited, action(400, Ack), Attempt{Number: 1}, Decision{Verdict: Ack}},
		"action drop":                         {limited, action(500, Drop), Attempt{Number: 99}, Decision{Verdict: Drop}},
		"action retry of a 2xx":               {limited, action(200, Retry), Attempt{Number: 2}, Decision{Verdict: Retry, Delay: time.Second}},
		"action retry at the limit":           {limited, action(200, Retry), Attempt{Number: 10}, Decision{Verdict: DLQ, Reason: ReasonMaxDeliver}},
		"an action out of range":              {limited, action(204, 77), Attempt{Number: 1}, Decision{Verdict: Ack}},
		"last but one attempt":                {limited, answered(503), Attempt{Number: 9}, Decision{Verdict: Retry, Delay: 30 * time.Second}},
		"last attempt":                        {limited, answered(503), Attempt{Number: 10}, Decision{Verdict: DLQ, Reason: ReasonMaxDeliver}},
		"past the last attempt":               {limited, answered(503), Attempt{Number: math.MaxUint64}, Decision{Verdict: DLQ, Reason: ReasonMaxDeliver}},
		"last attempt, acked":                 {limited, answered(200), Attempt{Number: 10, Age: 2 * time.Hour}, Decision{Verdict: Ack}},
		"no limit":                            {unlimited, answered(503), Attempt{Number: math.MaxUint64, Age: math.MaxInt64}, Decision{Verdict: Retry, Delay: 30 * time.Second}},
		"at the age":                          {limited, answered(503), Attempt{Number: 1, Age: time.Hour}, Decision{Verdict: Retry, Delay: 500 * time.Millisecond}},
		"past the age":                        {limited, answered(503), Attempt{Number: 1, Age: time.Hour + 1}, Decision{Verdict: DLQ, Reason: ReasonMaxAge}},
		"both limits":                         {limited, answered(503), Attempt{Number: 10, Age: 2 * time.Hour}, Decision{Verdict: DLQ, Reason: ReasonMaxDeliver}},
		"stored in the future":                {limited, answered(503), Attempt{Number: 1, Age: -time.Hour}, Decision{Verdict: Retry, Delay: 500 * time.Millisecond}},
		"no answer":                           {limited, Outcome{Kind: NoAnswer, Status: 200}, Attempt{Number: 1}, Decision{Verdict: Retry, Delay: 500 * time.Millisecond}},
		"no answer at the limit":              {limited, Outcome{Kind: NoAnswer}, Attempt{Number: 10}, Decision{Verdict: DLQ, Reason: ReasonMaxDeliver}},
		"undeliverable":                       {limited, Outcome{Kind: Undeliverable}, Attempt{Number: 1}, Decision{Verdict: DLQ, Reason: ReasonUndeliverable}},
		"handed back, at both limits":         {limited, Outcome{Kind: HandedBack, Status: 500}, Attempt{Number: 10, Age: 2 * time.Hour}, Decision{}},
		"an outcome of no kind":               {limited, Outcome{}, Attempt{Number: 1}, Decision{Verdict: Retry, Delay: 500 * time.Millisecond}},
		"random all the way":                  {limited, answered(500), Attempt{Number: 3, Random: 0.5}, Decision{Verdict: Retry, Delay: 3 * time.Second}},
		"Retry-After raises":                  {limited, Outcome{Kind: Answered, Status: 429, RetryAfter: time.Minute}, Attempt{Number: 1}, Decision{Verdict: Retry, Delay: time.Minute}},
		"Retry-After does not lower":          {limited, Outcome{Kind: Answered, Status: 429, RetryAfter: time.Second}, Attempt{Number: 9}, Decision{Verdict: Retry, Delay: 30 * time.Second}},
		"Retry-After is bounded":              {limited, Outcome{Kind: Answered, Status: 429, RetryAfter: math.MaxInt64}, Attempt{Number: 1}, Decision{Verdict: Retry, Delay: 10 * time.Minute}},
		"Retry-After of an action":            {limited, Outcome{Kind: Answered, Status: 200, Action: Retry, RetryAfter: time.Minute}, Attempt{Number: 1}, Decision{Verdict: Retry, Delay: time.Minute}},
		"Retry-After of an ack means nothing": {limited, Outcome{Kind: Answered, Status: 200, RetryAfter: time.Minute}, Attempt{Number: 1}, Decision{Verdict: Ack}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.policy.Decide(c.outcome, c.attempt); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// Whatever comes in, a retry waits, a dead letter has its reason, and only what was handed back has no verdict.
func TestDecideIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			MaxDeliver: rapid.Int().Draw(t, "max_deliver"),
			MaxAge:     time.Duration(rapid.Int64().Draw(t, "max_age")),
			Retry:      anyRetry(t),
		}
		o := Outcome{
			Kind:       Kind(rapid.Uint8().Draw(t, "kind")),
			Status:     rapid.Int().Draw(t, "status"),
			Action:     Verdict(rapid.Uint8().Draw(t, "action")),
			RetryAfter: time.Duration(rapid.Int64().Draw(t, "retry_after")),
		}
		d := p.Decide(o, Attempt{
			Number: rapid.Uint64().Draw(t, "number"),
			Age:    time.Duration(rapid.Int64().Draw(t, "age")),
			Random: rapid.Float64().Draw(t, "random"),
		})
		if (d.Verdict == 0) != (o.Kind == HandedBack) || d.Verdict > Drop {
			t.Fatalf("verdict %v", d.Verdict)
		}
		if (d.Reason != "") != (d.Verdict == DLQ) {
			t.Fatalf("verdict %v, reason %q", d.Verdict, d.Reason)
		}
		if (d.Delay > 0) != (d.Verdict == Retry) {
			t.Fatalf("verdict %v, delay %v", d.Verdict, d.Delay)
		}
	})
}

func TestParseAction(t *testing.T) {
	for value, want := range map[string]Verdict{
		"ack": Ack, "RETRY": Retry, "Dlq": DLQ, " drop\t": Drop,
		"": 0, "none": 0, "nak": 0, "ack,ack": 0, "a ck": 0, "ack\x00": 0,
	} {
		got, ok := ParseAction(value)
		if got != want || ok != (want != 0) {
			t.Errorf("%q: got %v, %v", value, got, ok)
		}
	}
	for v := Ack; v <= Drop; v++ {
		if got, ok := ParseAction(v.String()); !ok || got != v {
			t.Errorf("%v does not read back", v)
		}
	}
}
