package forward

import (
	"bytes"
	"strconv"
)

// appendEvents appends messages as a batch of CloudEvents (CloudEvents 1.0.2, JSON batch format). It returns how many attributes and
// header lines were left out.
func appendEvents(dst []byte, ms []Message) (_ []byte, dropped int) {
	var w itemWriter
	for i := range ms {
		var left int
		dst, left = w.event(append(dst, "[,"[min(i, 1)]), &ms[i])
		dropped += left
	}
	return append(dst, ']'), dropped
}

// event appends a message as an event, with what single delivery says in headers as extension attributes. They come last: of a member that is
// there twice the last one counts.
func (w *itemWriter) event(dst []byte, m *Message) ([]byte, int) {
	begin := len(dst)
	dst, dropped := AppendCloudEvent(dst, m)
	dst = append(dst[:begin], bytes.TrimRight(dst[begin:], " \t\r\n")...)
	dst = dst[:len(dst)-1] // the brace at its end
	dst = appendText(append(w.id(append(dst, `,"natsid":"`...), m), `","natssubject":"`...), m.Subject)
	dst = strconv.AppendUint(append(dst, `","natssequence":"`...), m.Sequence, 10)
	dst = w.time(append(dst, `","natstimestamp":"`...), m.Stored.UTC())
	dst = strconv.AppendUint(append(dst, `","natsnumdelivered":`...), m.Delivered, 10)
	if m.MaxDeliver > 0 {
		dst = strconv.AppendUint(append(dst, `,"natsmaxdeliver":`...), m.MaxDeliver, 10)
	}
	return append(dst, '}'), dropped
}

// idsOf are the messages that an app can mean by each id.
func idsOf(f Format, ms []Message) map[string][]int {
	ids := make(map[string][]int, len(ms))
	var w itemWriter
	var id []byte
	for i := range ms {
		id = w.id(id[:0], &ms[i])
		text := unescaped(id)
		ids[text] = append(ids[text], i)
	}
	if f == Raw {
		return ids
	}
	for i := range ms {
		e := eventOf(&ms[i])
		for _, a := range e.attributes {
			if a.name == "id" && !containsOnly(ids[a.value], i) {
				ids[a.value] = append(ids[a.value], i)
			}
		}
	}
	return ids
}

func containsOnly(of []int, i int) bool { return len(of) == 1 && of[0] == i }
