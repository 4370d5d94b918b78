package policy

import "strings"

// String is the verdict's word, as in the Sidecar-Action header, the log and the metrics; "none" for the zero Verdict.
func (v Verdict) String() string {
	switch v {
	case Ack:
		return "ack"
	case Retry:
		return "retry"
	case DLQ:
		return "dlq"
	case Drop:
		return "drop"
	default:
		return "none"
	}
}

// ParseAction reads the value of a Sidecar-Action header: ack, retry, dlq or drop, in any case, blanks around it ignored.
func ParseAction(value string) (Verdict, bool) {
	value = strings.TrimSpace(value)
	for v := Ack; v <= Drop; v++ {
		if strings.EqualFold(value, v.String()) {
			return v, true
		}
	}
	return 0, false
}
