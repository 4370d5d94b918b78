package dlq

import (
	"slices"
	"strings"

	"github.com/jetsidecar/jetsidecar/jetstream"
)

// subjects are the subjects of a DLQ stream under which the filter's entries can be, for the server to look at nothing else; none
// where that cannot be said: the templates are those of the configured consumers, and another one's entries need not follow them. They never
// overlap. stream are the subjects that the DLQ stream has.
func (s *Service) subjects(f *Filter, dlqStream string, stream []string) []string {
	switch {
	case f.Consumer == "" && f.Subject == "", f.Consumer != "" && !s.scope.names[f.Consumer], f.explicit():
		return nil
	}
	var known, wanted []string
	for _, c := range s.consumers {
		if jetstream.DeadLetterStream(c.DLQ, c.Stream, c.Durable) != dlqStream {
			continue
		}
		known = append(known, jetstream.DeadLetterPattern(c.DLQ, c.Stream))
		wanted = append(wanted, jetstream.DeadLetterSubjects(c.DLQ, c.Stream, f.Consumer, f.Subject)...)
	}
	for _, subject := range stream {
		if !slices.Contains(known, subject) {
			wanted = append(wanted, subject) // of an earlier configuration, perhaps
		}
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	wanted = slices.DeleteFunc(wanted, func(w string) bool {
		return !slices.ContainsFunc(stream, func(s string) bool { return jetstream.SubjectsOverlap(s, w) })
	})
	for i, a := range wanted {
		if strings.ContainsAny(a, " \t\r\n") || len(a) > 1000 {
			return nil
		}
		for _, b := range wanted[:i] {
			if jetstream.SubjectsOverlap(a, b) {
				return nil
			}
		}
	}
	return wanted
}
