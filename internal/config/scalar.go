package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	wholeNumber   = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)
	plainNumber   = regexp.MustCompile(`^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$`)
	sizeWithUnit  = regexp.MustCompile(`^([0-9]+) ?([A-Za-z]+)$`)
	daysOrLonger  = regexp.MustCompile(`^[0-9.]+ ?(d|w|y|day|days|week|weeks)$`)
	sizeUnits     = map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
	errEmpty      = errors.New("is empty")
	errOutOfRange = errors.New("is out of range")
)

// scalarValue turns the text of a node into a value of the field's kind.
func scalarValue(f field, n *node) (any, error) {
	if n.tag == tagEnv && n.text == "" && f.kind != text {
		return nil, errEmpty
	}
	switch f.kind {
	case text:
		return textValue(f, n)
	case number:
		return numberValue(n)
	case real:
		return realValue(n)
	case boolean:
		return flagValue(n)
	case duration:
		return durationValue(n)
	case size:
		return sizeValue(n)
	}
	return nil, fmt.Errorf("holds %s", n.noun())
}

func textValue(f field, n *node) (string, error) {
	switch {
	case n.tag == tagUnknown:
		return "", errors.New("has a tag that is not known here")
	case n.tag == tagText || n.tag == tagEnv:
	case f.loose && n.tag != tagBool:
	default:
		return "", fmt.Errorf("is %s and must be text: write it in quotes", n.noun())
	}
	return n.text, nil
}

func numberValue(n *node) (int64, error) {
	switch {
	case n.tag == tagText || n.tag == tagBool || n.tag == tagTime || n.tag == tagUnknown:
		return 0, fmt.Errorf("is %s and must be a whole number", n.noun())
	case !wholeNumber.MatchString(n.text):
		return 0, errors.New("must be a whole number in plain decimal")
	}
	v, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil {
		return 0, errOutOfRange
	}
	return v, nil
}

func realValue(n *node) (float64, error) {
	if n.tag != tagInt && n.tag != tagFloat && n.tag != tagEnv {
		return 0, fmt.Errorf("is %s and must be a number", n.noun())
	}
	if !plainNumber.MatchString(n.text) {
		return 0, errors.New("must be a finite number in plain decimal")
	}
	v, err := strconv.ParseFloat(n.text, 64)
	if err != nil || math.IsInf(v, 0) {
		return 0, errOutOfRange
	}
	return v, nil
}

func flagValue(n *node) (bool, error) {
	if (n.tag == tagBool || n.tag == tagEnv) && (n.text == "true" || n.text == "false") {
		return n.text == "true", nil
	}
	return false, errors.New("must be true or false")
}

func durationValue(n *node) (time.Duration, error) {
	switch {
	case n.text == "0":
		return 0, nil
	case n.tag == tagInt || n.tag == tagFloat || plainNumber.MatchString(n.text):
		return 0, errors.New("has no unit: write it as a duration, for example 30s")
	case daysOrLonger.MatchString(n.text):
		return 0, errors.New("has a unit that durations do not know: write it in hours, for example 24h")
	case n.tag != tagText && n.tag != tagEnv:
		return 0, fmt.Errorf("is %s and must be a duration, for example 30s", n.noun())
	}
	d, err := time.ParseDuration(n.text)
	if err != nil {
		return 0, errors.New("must be a duration, for example 500ms, 30s or 1h30m")
	}
	return d, nil
}

func sizeValue(n *node) (int64, error) {
	if wholeNumber.MatchString(n.text) {
		v, err := strconv.ParseInt(n.text, 10, 64)
		if err != nil {
			return 0, errOutOfRange
		}
		return v, nil
	}
	m := sizeWithUnit.FindStringSubmatch(n.text)
	if m == nil || n.tag != tagText && n.tag != tagEnv {
		return 0, errors.New("must be a whole number of bytes or a size such as 64KiB or 16MiB")
	}
	unit, ok := sizeUnits[m[2]]
	if !ok {
		return 0, errors.New("has an unknown unit: write B, KiB, MiB, GiB, TiB, kB, MB, GB or TB")
	}
	v, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || v > math.MaxInt64/unit {
		return 0, errOutOfRange
	}
	return v * unit, nil
}

// orList is "a, b or c".
func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
