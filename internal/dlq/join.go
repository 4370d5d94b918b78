package dlq

import "slices"

// heldMost is how many entries a joiner holds back until it has the second part of the first of them. Parts are stored one
// right after the other, but for a crash between: then it is looked for in the whole stream.
const heldMost = 256

// joiner makes entries of the stored messages of a DLQ stream, in the order of their first parts.
type joiner struct {
	held []*Entry            // in order; the first one waits for its second part
	open map[string][]*Entry // those in held whose second part did not come, oldest first
	// lookUp reads the parts of the whole stream. Once it was needed, that alone says what belongs together.
	lookUp func() (*pairs, error)
	all    *pairs // nil until then
}

// add takes the next message and returns the entries that are complete now, in order.
func (j *joiner) add(e *Entry) ([]*Entry, error) {
	switch {
	case e.Part == firstPart && j.all != nil:
		j.decide(e)
		j.held = append(j.held, e)
	case e.Part == firstPart:
		if j.open == nil {
			j.open = map[string][]*Entry{}
		}
		j.open[e.letterKey()] = append(j.open[e.letterKey()], e)
		j.held = append(j.held, e)
	case e.Part == secondPart:
		if err := j.second(e); err != nil {
			return nil, err
		}
	default:
		j.held = append(j.held, e)
	}
	if len(j.held) > heldMost {
		return j.flush()
	}
	n := 0
	for n < len(j.held) && !j.held[n].waits() {
		n++
	}
	ready := j.held[:n:n]
	j.held = j.held[n:]
	return ready, nil
}

// second joins a second part to its first. One whose first was not read is no entry of its own, unless there is none.
func (j *joiner) second(e *Entry) error {
	key := e.letterKey()
	if waiting := j.open[key]; len(waiting) > 0 {
		waiting[0].join(e.parts[0])
		j.open[key] = waiting[1:]
		return nil
	}
	if err := j.look(); err != nil {
		return err
	}
	if _, paired := j.all.mate[e.Seq]; !paired {
		j.held = append(j.held, e)
	}
	return nil
}

// flush decides over all that is held.
func (j *joiner) flush() ([]*Entry, error) {
	if slices.ContainsFunc(j.held, (*Entry).waits) {
		if err := j.look(); err != nil {
			return nil, err
		}
	}
	ready := j.held
	j.held = nil
	return ready, nil
}

// look reads the parts of the whole stream, and decides over those that wait.
func (j *joiner) look() (err error) {
	if j.all != nil {
		return nil
	}
	if j.all, err = j.lookUp(); err != nil {
		return err
	}
	j.open = nil
	for _, e := range j.held {
		if e.waits() {
			j.decide(e)
		}
	}
	return nil
}

// decide joins a first part to its second, or leaves it alone: half an entry.
func (j *joiner) decide(e *Entry) {
	if mate, ok := j.all.mate[e.Seq]; ok {
		e.join(mate)
	} else {
		e.alone = true
	}
}

// waits reports whether the second part of an entry may still come.
func (e *Entry) waits() bool { return e.Part == firstPart && !e.alone }

// pairs are the parts of a stream that belong together.
type pairs struct {
	mate  map[uint64]part // by the sequence of the one, the other
	alone map[string][]*Entry
}

// add takes the next part of the stream.
func (p *pairs) add(e *Entry) {
	if p.alone == nil {
		p.alone, p.mate = map[string][]*Entry{}, map[uint64]part{}
	}
	key := e.letterKey()
	if waiting := p.alone[key]; len(waiting) > 0 && waiting[0].Part != e.Part {
		p.mate[waiting[0].Seq], p.mate[e.Seq] = e.parts[0], waiting[0].parts[0]
		p.alone[key] = waiting[1:]
		return
	}
	p.alone[key] = append(p.alone[key], e)
}
