package check

import (
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

var queries = parser.NewParser(parser.Options{})

// parse reads a rules file as Prometheus does, strictly.
func parse(text []byte) (*rulefmt.RuleGroups, []error) {
	return rulefmt.Parse(text, false, model.UTF8Validation, queries, promslog.NewNopLogger())
}

// loaded has series in the notation of promtool's tests ("name{label=\"x\"} 0+1x60"), a value a minute.
func loaded(t *testing.T, lines []string) storage.Queryable {
	t.Helper()
	var all []storage.Series
	for _, line := range lines {
		name, values, err := queries.ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var samples []chunks.Sample
		for i, v := range values {
			if !v.Omitted {
				samples = append(samples, sample{at: (time.Duration(i) * time.Minute).Milliseconds(), value: v.Value})
			}
		}
		all = append(all, storage.NewListSeries(name, samples))
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			return &set{rest: matching(all, matchers)}
		},
	}}
}

func matching(all []storage.Series, matchers []*labels.Matcher) (found []storage.Series) {
	for _, s := range all {
		fits := true
		for _, m := range matchers {
			fits = fits && m.Matches(s.Labels().Get(m.Name))
		}
		if fits {
			found = append(found, s)
		}
	}
	return found
}

// set is a storage.SeriesSet.
type set struct {
	at   storage.Series
	rest []storage.Series
}

func (s *set) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}

func (s *set) At() storage.Series                { return s.at }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// sample is a chunks.Sample of a float.
type sample struct {
	at    int64
	value float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.at }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
