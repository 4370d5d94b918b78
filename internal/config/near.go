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

// didYouMean is `; did you mean "x"?` if a known word is near, else empty.
func didYouMean(word string, known []string) string {
	best, d := Nearest(word, known)
	if d > max(2, len(best)/3) {
		return ""
	}
	return `; did you mean "` + best + `"?`
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
