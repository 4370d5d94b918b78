package dlq

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrPosition means that a Position does not belong to what is selected.
var ErrPosition = errors.New("not the cursor of a page of this selection")

// Position is a place in a List: how far each DLQ stream was brought; of one that is not named, as with 0, nothing. Its text, also in JSON, is
// STREAM:SEQ for each stream with points between, which the name of a stream never has. The zero Position is the beginning.
type Position []Cursor

// String is the position's text; empty for the beginning.
func (p Position) String() string {
	texts := make([]string, len(p))
	for i, c := range p {
		texts[i] = c.String()
	}
	return strings.Join(texts, ".")
}

// ParsePosition reads the text of a position.
func ParsePosition(text string) (Position, error) {
	if text == "" {
		return nil, nil
	}
	var p Position
	for one := range strings.SplitSeq(text, ".") {
		c, err := ParseCursor(one)
		if err == nil && c.Stream == "" {
			err = errors.New("a part of it is empty")
		}
		if _, twice := p.Of(c.Stream); err == nil && twice {
			err = fmt.Errorf("it names %s twice", c.Stream)
		}
		if err != nil {
			return nil, err
		}
		p = append(p, c)
	}
	return p, nil
}

// Of is the sequence for a DLQ stream, and whether there is one.
func (p Position) Of(stream string) (seq uint64, ok bool) {
	i := slices.IndexFunc(p, func(c Cursor) bool { return c.Stream == stream })
	if i < 0 {
		return 0, false
	}
	return p[i].Seq, true
}

// Check returns ErrPosition if a position, unless it is the beginning, names none of the DLQ streams.
func (p Position) Check(streams []string) error {
	if len(p) == 0 || slices.ContainsFunc(p, func(c Cursor) bool { return slices.Contains(streams, c.Stream) }) {
		return nil
	}
	return fmt.Errorf("after: %w: it names none of its DLQ streams, which are %s", ErrPosition, orNone(streams))
}

// MarshalJSON writes the position's text.
func (p Position) MarshalJSON() ([]byte, error) { return json.Marshal(p.String()) }

// UnmarshalJSON reads the position's text.
func (p *Position) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	parsed, err := ParsePosition(text)
	*p = parsed
	return err
}
