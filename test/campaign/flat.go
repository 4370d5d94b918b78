//go:build unix

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

const (
	// steadySlot is the sidecar that lives through a whole soak.
	steadySlot = 0
	// fewestLooks can be judged: the first fifth of all is warm-up, and of each third of the others there must be one.
	fewestLooks = 4
)

// measure is something that must not grow: its median over the last third of the looks may be above that over the first
// third by the share and the constant.
type measure struct {
	name    string
	of      func(look) int64
	percent int64
	plus    int64
	unit    int64 // that one is told in
}

var measures = []measure{
	{"resident memory, MiB", func(l look) int64 { return l.rss }, 20, 8 << 20, 1 << 20},
	{"goroutines", func(l look) int64 { return l.goroutines }, 0, 3, 1},
	{"open files", func(l look) int64 { return l.files }, 0, 2, 1},
	{"sockets", func(l look) int64 { return l.sockets }, 0, 2, 1},
}

// course is how a measure went.
type course struct {
	measure
	thirds  [3]int64 // medians
	most    int64
	allowed int64 // in the last third
}

// flatness is how a sidecar went through a soak.
type flatness struct {
	life    string
	looks   int // that count
	warmUp  int // that do not
	courses []course
	why     string // it cannot be judged
}

// judge goes by the looks at one sidecar, which must be one process all the time.
func judge(looks []look, slot int) flatness {
	looks = slices.DeleteFunc(slices.Clone(looks), func(l look) bool { return l.slot != slot })
	f := flatness{warmUp: (len(looks) + 4) / 5}
	if len(looks) < fewestLooks {
		f.why = fmt.Sprintf("only %d looks were taken, it takes %d", len(looks), fewestLooks)
		return f
	}
	f.life, looks = looks[0].life, looks[f.warmUp:]
	f.looks = len(looks)
	if slices.ContainsFunc(looks, func(l look) bool { return l.life != f.life }) {
		f.why = "its process was replaced"
		return f
	}
	for _, m := range measures {
		c := course{measure: m}
		for i := range c.thirds {
			c.thirds[i] = median(looks[i*len(looks)/3:(i+1)*len(looks)/3], m.of)
		}
		for _, l := range looks {
			c.most = max(c.most, m.of(l))
		}
		c.allowed = c.thirds[0] + c.thirds[0]*m.percent/100 + m.plus
		f.courses = append(f.courses, c)
	}
	return f
}

func (c course) grew() bool { return c.thirds[2] > c.allowed }

func (f flatness) flat() bool {
	return f.why == "" && !slices.ContainsFunc(f.courses, course.grew)
}

func median(looks []look, of func(look) int64) int64 {
	var all []int64
	for _, l := range looks {
		all = append(all, of(l))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func printFlatness(out io.Writer, f flatness, looks []look) {
	fmt.Fprintf(out, "\nsidecar %s, never killed: %d looks at quiet moments after %d of warm-up\n", f.life, f.looks, f.warmUp)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  median of the\tfirst third\tsecond\tlast\tallowed\tmost\tmost of the others\n")
	for _, c := range f.courses {
		fmt.Fprintf(w, "  %s", c.name)
		others := int64(0)
		for _, l := range looks {
			if l.slot != steadySlot {
				others = max(others, c.of(l))
			}
		}
		for _, v := range []int64{c.thirds[0], c.thirds[1], c.thirds[2], c.allowed, c.most, others} {
			fmt.Fprintf(w, "\t%s", c.tell(v))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	for _, c := range f.courses {
		if c.grew() {
			fmt.Fprintf(out, "  BROKEN: flat: %s grew from %s to %s, %s are allowed\n", c.name, c.tell(c.thirds[0]), c.tell(c.thirds[2]), c.tell(c.allowed))
		}
	}
	switch {
	case f.why != "":
		fmt.Fprintf(out, "  BROKEN: flat: it cannot be told: %s\n", f.why)
	case f.flat():
		fmt.Fprintln(out, "  flat")
	}
}

func (m measure) tell(v int64) string {
	if m.unit == 1 {
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("%.1f", float64(v)/float64(m.unit))
}
