package config

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/jetsidecar/jetsidecar/policy"
)

// line is one line of a listing: text, and a comment that is set off from it.
type line struct {
	text, comment string
}

// WriteYAML writes the effective configuration as YAML, each value with where it came from and secrets redacted.
func (l *Loaded) WriteYAML(w io.Writer) error {
	p := printer{loaded: l}
	p.section(schema().sub, "", "", reflect.ValueOf(l.Config))
	width := 0
	for _, line := range p.lines {
		if line.comment != "" && len(line.text) <= 60 {
			width = max(width, len(line.text))
		}
	}
	var b strings.Builder
	for _, line := range p.lines {
		b.WriteString(line.text)
		if line.comment != "" {
			b.WriteString(strings.Repeat(" ", max(0, width-len(line.text))) + "  # " + line.comment)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type printer struct {
	loaded *Loaded
	lines  []line
}

func (p *printer) add(text, comment string) {
	p.lines = append(p.lines, line{text, comment})
}

func (p *printer) section(fields []field, indent, path string, v reflect.Value) {
	for _, f := range fields {
		full, sub := join(path, f.key), f.of(v)
		switch {
		case full == "defaults":
		case f.inShort(sub):
			first := f.sub[0]
			p.add(indent+f.key+": "+first.shownLeaf(first.of(sub)), p.loaded.Origin(p.loaded.firstPart(full, f)).String())
		case f.kind == section:
			p.add(indent+f.key+":", "")
			if s, ok := sub.Interface().(policy.StatusConfig); ok {
				p.status(f.sub, indent+"  ", full, s)
				continue
			}
			p.section(f.sub, indent+"  ", full, sub)
		case f.kind == sections:
			p.add(indent+f.key+":", "")
			for i := range sub.Len() {
				from := len(p.lines)
				p.section(f.sub, indent+"    ", fmt.Sprintf("%s[%d]", full, i), sub.Index(i))
				p.lines[from].text = indent + "  - " + strings.TrimLeft(p.lines[from].text, " ")
			}
		default:
			p.add(indent+f.key+": "+f.shownLeaf(sub), p.loaded.Origin(full).String())
		}
	}
}

// status writes the status lists. Lists that the user gave are looked up before the others, so a list that was not
// given beside one that was is written as a comment: as a value it would mean something else.
func (p *printer) status(fields []field, indent, path string, s policy.StatusConfig) {
	given := s.Ack != nil || s.Retry != nil || s.DLQ != nil || s.Drop != nil
	have, defaults := reflect.ValueOf(s), reflect.ValueOf(policy.DefaultStatus())
	for _, f := range fields {
		v := have.Field(f.index)
		switch {
		case !v.IsNil():
			p.add(indent+f.key+": "+f.shownLeaf(v), p.loaded.Origin(join(path, f.key)).String())
		case given:
			p.add(indent+"# "+f.key+": "+f.shownLeaf(defaults.Field(f.index)), "default, looked up after the lists given")
		default:
			p.add(indent+f.key+": "+f.shownLeaf(defaults.Field(f.index)), FromDefault)
		}
	}
}
