package config

import (
	"fmt"
	"strings"
)

// list decodes a list of strings: in a file a list, in the environment a,b. A status list takes numbers too, and a
// secret list one string.
func (d *decoder) list(f field, n *node, o Origin, path string) ([]string, bool) {
	items := n.items
	switch {
	case n.shape == scalar && n.tag == tagEnv:
		items = splitEnv(n.text)
	case n.shape == scalar && f.secret == "file" && n.text == "":
		return nil, true // no secret
	case n.shape == scalar && f.secret == "file":
		items = []*node{n}
	case n.shape != sequence:
		d.fault(o, path, f.shownNode(n), fmt.Sprintf("is %s and must be a list, also of one: [...]", n.noun()))
		return nil, false
	}
	out := make([]string, 0, len(items))
	ok := true
	for i, item := range items {
		p := fmt.Sprintf("%s[%d]", path, i)
		at := o
		if item.line > 0 {
			at.Line = item.line
		}
		s, err := listItem(f, item)
		if err != nil {
			d.fault(at, p, f.shownNode(item), err.Error())
			d.wrong[path], ok = true, false
			continue
		}
		out = append(out, s)
	}
	return out, ok
}

func listItem(f field, n *node) (string, error) {
	switch {
	case n.shape != scalar:
		return "", fmt.Errorf("is %s and must be text", n.noun())
	case n.tag == tagInt && f.isStatus():
		return n.text, nil
	}
	return textValue(field{kind: text}, n)
}

// dict decodes a map of strings: in a file a map, in the environment a=b,c=d.
func (d *decoder) dict(_ field, n *node, o Origin, path string) (map[string]string, bool) {
	pairs := n.pairs
	switch {
	case n.shape == scalar && n.tag == tagEnv:
		for i, item := range splitEnv(n.text) {
			key, value, found := strings.Cut(item.text, "=")
			if !found {
				d.fault(o, path, "", fmt.Sprintf("entry %d has no =: write a=b,c=d (a value with a comma can only be given in a file)", i+1))
				return nil, false
			}
			pairs = append(pairs, pair{key: strings.TrimSpace(key), node: &node{shape: scalar, tag: tagEnv, text: strings.TrimSpace(value)}})
		}
	case n.shape != mapping:
		d.fault(o, path, "", fmt.Sprintf("is %s and must be a map", n.noun()))
		return nil, false
	}
	out := make(map[string]string, len(pairs))
	ok := true
	for _, p := range pairs {
		at := o
		if p.line > 0 {
			at.Line = p.line
		}
		s, err := dictValue(out, p)
		if err != nil {
			d.fault(at, join(path, p.key), "", err.Error())
			d.wrong[path], ok = true, false
			continue
		}
		out[p.key] = s
	}
	return out, ok
}

func dictValue(have map[string]string, p pair) (string, error) {
	if _, ok := have[p.key]; ok {
		return "", fmt.Errorf("is given twice")
	}
	if p.node.shape != scalar {
		return "", fmt.Errorf("is %s and must be text", p.node.noun())
	}
	return textValue(field{kind: text}, p.node)
}

// splitEnv splits a,b as the environment gives lists; an empty text is an empty list.
func splitEnv(s string) []*node {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	var items []*node
	for part := range strings.SplitSeq(s, ",") {
		items = append(items, &node{shape: scalar, tag: tagEnv, text: strings.TrimSpace(part)})
	}
	return items
}
