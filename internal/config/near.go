package config

import (
	"slices"
	"strings"
)

// maxWord bounds the length of the words that are compared.
const maxWord = 128

// Nearest returns the word of known that is most like word, and how many edits they are apart.
func Nearest(word string, known []string) (string, int) {
	best, distance := "", 1<<30
	for _, k := range known {
		if d := edits(plain(word), plain(k)); d < distance {
			best, distance = k, d
		}
	}
	return best, distance
}

// Near returns the word of known that word was probably meant to be, or nothing if none is near: one with at most
// three edits, in at most a third of the word and half of what follows the sections (joined by _) that both begin with,
// or else the longest one that word begins with.
func Near(word string, known []string) string {
	best, d := Nearest(word, known)
	if d == 0 {
		return best
	}
	rest, other := withoutSections(word, best)
	if d > 3 || 3*d > max(len(plain(word)), len(plain(best))) || 2*d > max(len(plain(rest)), len(plain(other))) {
		return longestBeginning(word, known)
	}
	return best
}

// leastBeginning is how much of a word the beginning of it must be to mean something.
const leastBeginning = 3

// longestBeginning is the longest known word that word begins with, if any.
func longestBeginning(word string, known []string) string {
	best := ""
	for _, k := range known {
		if len(k) >= leastBeginning && len(k) > len(best) && strings.HasPrefix(plain(word), plain(k)) {
			best = k
		}
	}
	return best
}

// withoutSections drops what two words begin with alike, up to its last _.
func withoutSections(a, b string) (restA, restB string) {
	begin := 0
	for i := 0; i < min(len(a), len(b)) && a[i] == b[i]; i++ {
		if a[i] == '_' {
			begin = i + 1
		}
	}
	return a[begin:], b[begin:]
}

// didYouMean is `; did you mean "x"?` if a known word is near, else empty.
func didYouMean(word string, known []string) string {
	best := Near(word, known)
	if best == "" {
		return ""
	}
	return `; did you mean "` + best + `"?`
}

// nearestOne names the nearest known word, however far it is.
func nearestOne(word string, known []string) string {
	best, _ := Nearest(word, known)
	if best == "" {
		return ""
	}
	return `; the nearest known one is "` + best + `"`
}

// plain drops what people write differently: case, dashes and underscores.
func plain(word string) string {
	if len(word) > maxWord {
		word = word[:maxWord]
	}
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(word))
}

// edits is the Damerau-Levenshtein distance (optimal string alignment) in bytes.
func edits(a, b string) int {
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// elsewhere names where in the schema a key belongs, if it is known at all.
func elsewhere(key string) string {
	var places []string
	var walk func(path string, fields []field)
	walk = func(path string, fields []field) {
		for _, f := range fields {
			p := strings.TrimPrefix(path+"."+f.key, ".")
			switch {
			case f.key == "defaults":
				continue
			case f.kind == sections:
				p += "[]"
			}
			if f.key == key {
				places = append(places, p)
			}
			walk(p, f.sub)
		}
	}
	walk("", schema().sub)
	if len(places) == 0 {
		return ""
	}
	slices.Sort(places)
	return "; it is known as " + orList(places)
}
