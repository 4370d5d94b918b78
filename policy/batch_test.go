package policy

import (
	"testing"
	"time"
)

func TestDivides(t *testing.T) {
	for name, c := range map[string]struct {
		o    Outcome
		want bool
	}{
		"acked":                              {Outcome{Kind: Answered, Status: 200}, false},
		"handed back":                        {Outcome{Kind: HandedBack}, false},
		"no answer":                          {Outcome{Kind: NoAnswer}, false},
		"one message's doing":                {Outcome{Kind: Answered, Status: 500}, true},
		"the app's":                          {Outcome{Kind: Answered, Status: 503}, false},
		"the app's, by its Retry-After":      {Outcome{Kind: Answered, Status: 500, Later: true, RetryAfter: time.Second}, false},
		"the app's, by a Retry-After of 0":   {Outcome{Kind: Answered, Status: 500, Later: true}, false},
		"retried by an action":               {Outcome{Kind: Answered, Status: 500, Action: Retry}, false},
		"rejected":                           {Outcome{Kind: Answered, Status: 422}, true},
		"rejected, whatever its Retry-After": {Outcome{Kind: Answered, Status: 422, Later: true, RetryAfter: time.Second}, true},
		"rejected by an action":              {Outcome{Kind: Answered, Status: 200, Action: DLQ}, true},
	} {
		if got := (&Policy{}).Divides(c.o); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
