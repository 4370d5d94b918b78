package policy

import (
	"errors"
	"fmt"
	"strings"
)

// DefaultStatus is the meaning of a status where the user gives none.
func DefaultStatus() StatusConfig {
	return StatusConfig{
		Ack:   []string{"2xx"},
		Retry: []string{"3xx", "401", "403", "404", "405", "407", "408", "409", "421", "423", "424", "425", "429", "5xx"},
		DLQ:   []string{"4xx"},
		Drop:  []string{},
	}
}

const (
	lowestStatus  = 100
	highestStatus = 599
)

// StatusTable is the verdict of every HTTP status.
type StatusTable struct {
	verdicts [highestStatus - lowestStatus + 1]Verdict
}

var defaultTable = func() *StatusTable {
	t, err := NewStatusTable(StatusConfig{})
	if err != nil {
		panic(err) // the defaults are ours
	}
	return t
}()

// NewStatusTable builds the table: the lists the user gave are looked up first (code, then class), then the defaults
// of the others; a status in no list is retry. It reports every fault, each with its list.
func NewStatusTable(c StatusConfig) (*StatusTable, error) {
	defaults := DefaultStatus()
	given, rest := newLists(), newLists()
	var faults []error
	for _, l := range []struct {
		key          string
		verdict      Verdict
		user, preset []string
	}{
		{"ack", Ack, c.Ack, defaults.Ack},
		{"retry", Retry, c.Retry, defaults.Retry},
		{"dlq", DLQ, c.DLQ, defaults.DLQ},
		{"drop", Drop, c.Drop, defaults.Drop},
	} {
		if l.user != nil {
			faults = append(faults, given.add(l.key, l.verdict, l.user))
		} else {
			faults = append(faults, rest.add(l.key, l.verdict, l.preset))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}

	t := new(StatusTable)
	for i := range t.verdicts {
		code := lowestStatus + i
		t.verdicts[i] = Retry
		if v := given.lookup(code); v != 0 {
			t.verdicts[i] = v
		} else if v := rest.lookup(code); v != 0 {
			t.verdicts[i] = v
		}
	}
	return t, nil
}

// Lookup is the verdict of a status. A status outside 100 to 599 is retry; a nil table is the default one.
func (t *StatusTable) Lookup(code int) Verdict {
	if t == nil {
		t = defaultTable
	}
	if code < lowestStatus || code > highestStatus {
		return Retry
	}
	return t.verdicts[code-lowestStatus]
}

// lists holds the entries of several lists. A code is its own key, a class (5xx) the key 5.
type lists struct {
	verdicts map[int]Verdict
	owner    map[int]string
}

func newLists() lists {
	return lists{verdicts: map[int]Verdict{}, owner: map[int]string{}}
}

func (l lists) add(key string, v Verdict, entries []string) error {
	var faults []error
	for _, entry := range entries {
		n, ok := parseStatus(entry)
		if !ok {
			faults = append(faults, fmt.Errorf("%s: %q is neither a status (404) nor a class (4xx)", key, entry))
			continue
		}
		if other, taken := l.owner[n]; taken && other != key {
			faults = append(faults, fmt.Errorf("%s: %q is also in %s", key, entry, other))
			continue
		}
		l.verdicts[n], l.owner[n] = v, key
	}
	return errors.Join(faults...)
}

func (l lists) lookup(code int) Verdict {
	if v := l.verdicts[code]; v != 0 {
		return v
	}
	return l.verdicts[code/100]
}

// parseStatus reads "404" as 404 and "4xx" as 4.
func parseStatus(entry string) (int, bool) {
	if len(entry) != 3 || entry[0] < '1' || entry[0] > '5' {
		return 0, false
	}
	if strings.EqualFold(entry[1:], "xx") {
		return int(entry[0] - '0'), true
	}
	code := 0
	for i := range len(entry) {
		if entry[i] < '0' || entry[i] > '9' {
			return 0, false
		}
		code = code*10 + int(entry[i]-'0')
	}
	return code, true
}
