package config

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestParseDeliverPolicy(t *testing.T) {
	at := time.Date(2024, 5, 6, 7, 8, 9, 500, time.UTC)
	for s, want := range map[string]DeliverPolicy{
		"all": {Kind: DeliverAll}, "new": {Kind: DeliverNew}, "last": {Kind: DeliverLast}, "last_per_subject": {Kind: DeliverLastPerSubject},
		"1": {Kind: DeliverFromSequence, Seq: 1}, "18446744073709551615": {Kind: DeliverFromSequence, Seq: math.MaxUint64},
		"2024-05-06T07:08:09.0000005Z": {Kind: DeliverFromTime, Time: at},
	} {
		if got, err := ParseDeliverPolicy(s); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0", "01", "-1", "1.5", "18446744073709551616", "2024-05-06", "ALL"} {
		if _, err := ParseDeliverPolicy(s); err == nil {
			t.Errorf("takes %q", s)
		}
	}
}

func TestDLQNames(t *testing.T) {
	c := DefaultConsumer()
	c.Stream, c.Durable = "ORDERS", "w"
	if got := c.DLQStream(); got != "ORDERS_DLQ" {
		t.Errorf("stream %s", got)
	}
	if got := c.DLQSubjects(); got != "dlq.ORDERS.*.>" {
		t.Errorf("subjects %s", got)
	}
	if got := c.DLQSubject("orders.{stream}.new"); got != "dlq.ORDERS.w.orders.{stream}.new" {
		t.Errorf("subject %s", got)
	}
}

func TestOverlap(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a.*", "a.b", true}, {"a.*", "a", false}, {"a.>", "a", false}, {"a.>", "a.b.c", true},
		{">", "x", true}, {"*.b", "a.*", true}, {"a.*.c", "a.b.d", false}, {"a.>", "*.b", true}, {"a.b", "a.b.c", false},
	} {
		if overlap(tt.a, tt.b) != tt.want || overlap(tt.b, tt.a) != tt.want {
			t.Errorf("%s and %s: not %v", tt.a, tt.b, tt.want)
		}
	}
}

func TestSizes(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "17": 17, "64KiB": 65536, "16 MiB": 16 << 20, "1GB": 1e9, "1kB": 1000, "8388607TiB": 8388607 << 40} {
		if got, err := sizeValue(&node{shape: scalar, tag: tagEnv, text: s}); err != nil || got != want {
			t.Errorf("%s: got %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "1.5MiB", "16M", "MiB", "8388608TiB", "99999999999999999999", "1 2"} {
		if got, err := sizeValue(&node{shape: scalar, tag: tagEnv, text: s}); err == nil {
			t.Errorf("takes %q as %d", s, got)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"max_deliver", "max_age", "path"}
	for word, want := range map[string]string{"maxDeliver": "max_deliver", "max-age": "max_age", "pth": "path", "ptah": "path"} {
		if got, _ := Nearest(word, known); got != want {
			t.Errorf("%s: got %s", word, got)
		}
	}
}

func TestNear(t *testing.T) {
	known := []string{"max", "max_deliver", "path", "run", "rate", "ack"}
	for word, want := range map[string]string{"x": "", "foo": "", "": "", "maximum": "max", "MaxDeliver": "max_deliver", "rat": "rate", "akc": "ack", "rm": "", "max_delivery_count": "max_deliver"} {
		if got := Near(word, known); got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}

func TestValidateAlone(t *testing.T) {
	if err := Default().Validate(); err == nil {
		t.Error("a configuration without consumers is taken")
	}
	if err := exampleConfig().Validate(); err != nil {
		t.Error(err)
	}
	c := exampleConfig()
	c.Consumers[0].Retry.Multiplier = math.NaN()
	c.Consumers[0].Rate = math.Inf(1)
	c.Consumers[0].Retry.Jitter = math.NaN()
	var faults Faults
	if err := c.Validate(); !errors.As(err, &faults) || len(faults) != 3 {
		t.Errorf("got %v", err)
	}
}
