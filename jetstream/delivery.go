package jetstream

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// delivery is what the server says of a delivery in its reply subject.
type delivery struct {
	delivered, stream, consumer, pending uint64
	stored                               time.Time
}

// deliveryOf reads a reply subject. The form that servers write by default is read here, without an allocation; every other
// is left to nats.go.
func deliveryOf(msg *nats.Msg) (delivery, error) {
	if d, ok := parseDelivery(msg.Reply); ok {
		return d, nil
	}
	meta, err := msg.Metadata()
	if err != nil {
		return delivery{}, err
	}
	return delivery{
		delivered: meta.NumDelivered, stream: meta.Sequence.Stream, consumer: meta.Sequence.Consumer,
		pending: meta.NumPending, stored: meta.Timestamp,
	}, nil
}

// parseDelivery reads $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>.
func parseDelivery(reply string) (delivery, bool) {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	if !ok || strings.Count(rest, ".") != 6 {
		return delivery{}, false
	}
	_, rest, _ = strings.Cut(rest, ".")
	_, rest, _ = strings.Cut(rest, ".")
	var numbers [5]uint64
	for i := range numbers {
		var digits string
		digits, rest, _ = strings.Cut(rest, ".")
		if numbers[i], ok = decimal(digits); !ok {
			return delivery{}, false
		}
	}
	return delivery{
		delivered: numbers[0], stream: numbers[1], consumer: numbers[2],
		stored: time.Unix(0, int64(numbers[3])), pending: numbers[4],
	}, true
}

// decimal reads a number of at most 19 digits, which cannot overflow.
func decimal(digits string) (n uint64, ok bool) {
	if digits == "" || len(digits) > 19 {
		return 0, false
	}
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}
