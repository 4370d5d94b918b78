package dlq

import (
	"fmt"
	"slices"
)

// mostNames bounds the consumers that a Passed names.
const mostNames = 10

// Passed is what a reading came by and left out.
type Passed struct {
	Foreign int `json:"foreign"` // messages that are no dead letters
	// Others are entries that the filter would select if their consumers were in the configuration.
	Others int `json:"others"`
	// OtherConsumers are those of them that Filter.Consumer can name, sorted, and no more than a few.
	OtherConsumers []string `json:"other_consumers,omitempty"`
}

// scope is the consumers of a configuration.
type scope struct {
	pairs map[[2]string]bool // stream and durable
	names map[string]bool    // durable
}

func scopeOf(consumers []Consumer) scope {
	s := scope{pairs: map[[2]string]bool{}, names: map[string]bool{}}
	for _, c := range consumers {
		s.pairs[[2]string{c.Stream, c.Durable}] = true
		s.names[c.Durable] = true
	}
	return s
}

// has reports whether the consumer of an entry is in the configuration.
func (s scope) has(e *Entry) bool { return s.pairs[[2]string{e.Stream, e.Consumer}] }

// covers reports whether a filter may select an entry that matches it: one of the configured consumers, or of one that is named
// although it is not. A name that is configured, for another stream, takes the sequence of the entry beside it.
func (s scope) covers(f *Filter, e *Entry) bool {
	return s.has(e) || f.Consumer != "" && (f.explicit() || !s.names[f.Consumer])
}

// other counts an entry that is out of scope.
func (p *Passed) other(s scope, e *Entry) {
	p.Others++
	if at, found := slices.BinarySearch(p.OtherConsumers, e.Consumer); !found && !s.names[e.Consumer] && len(p.OtherConsumers) < mostNames {
		p.OtherConsumers = slices.Insert(p.OtherConsumers, at, e.Consumer)
	}
}

// Unnamed says why an entry of a consumer that is not in the configuration is not changed by its sequence alone; nil if it may be.
func (l *Letter) Unnamed(consumer string) error {
	if !l.Other || consumer != "" {
		return nil
	}
	return fmt.Errorf("entry %d of %s is of consumer %s of stream %s, which is not in this configuration: it is left unless that consumer is named",
		l.Seq, l.DLQStream, l.Consumer, l.Stream)
}

// Add counts what another reading left out.
func (p *Passed) Add(o *Passed) {
	if o.Foreign == 0 && o.Others == 0 {
		return
	}
	p.Foreign += o.Foreign
	p.Others += o.Others
	p.OtherConsumers = append(slices.Clone(p.OtherConsumers), o.OtherConsumers...)
	slices.Sort(p.OtherConsumers)
	p.OtherConsumers = slices.Compact(p.OtherConsumers)
	p.OtherConsumers = p.OtherConsumers[:min(len(p.OtherConsumers), mostNames)]
}
