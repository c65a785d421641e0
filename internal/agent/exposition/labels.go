package exposition

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// appendLabels appends what tells a consumer from others to the label of the node. Names that are not known are empty,
// which to Prometheus is as if the label were not there.
func (c *consumer) appendLabels(b []byte, names map[string]batch.Names) []byte {
	label := func(name, value string) { b = appendLabel(append(b, ','), name, value) }
	switch c.kind {
	case kindContainer:
		uid, container, _ := energy.PodOf(c.id)
		n := names[uid]
		label("pod_uid", uid)
		label("container_id", container)
		label("namespace", n.Namespace)
		label("pod", n.Pod)
		label("container", n.Containers[container])
	case kindVM:
		name, _ := energy.VMOf(c.id)
		label("vm", name)
	case kindCgroup:
		path, _ := energy.CgroupOf(c.id)
		label("cgroup", path)
	}
	return b
}

// maxLabel is how many bytes of a foreign string a label shows.
const maxLabel = 256

// appendLabel appends name="value". Values are foreign: what is too long, not UTF-8 or a control character is
// replaced, and then the value ends with a digest of what it was, so that two of them stay two. A value that already
// ends like that gets another digest, lest it be taken for the one that it is shown as.
func appendLabel(b []byte, name, value string) []byte {
	b = append(append(b, name...), '=', '"')
	if len(value) > maxLabel || !utf8.ValidString(value) || strings.ContainsFunc(value, isControl) ||
		digested.MatchString(value) {
		digest := sha256.Sum256([]byte(value))
		value = shorten(value) + "~" + hex.EncodeToString(digest[:8])
	}
	for i := range len(value) {
		if c := value[i]; c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, value[i])
	}
	return append(b, '"')
}

// digested is how a value ends that could not be shown as it is.
var digested = regexp.MustCompile(`~[0-9a-f]{16}$`)

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// shorten returns the beginning of value, with a mark in place of what cannot be shown.
func shorten(value string) string {
	value = value[:min(len(value), maxLabel/2)]
	return strings.Map(func(r rune) rune {
		if isControl(r) {
			return utf8.RuneError
		}
		return r // of bytes that are no UTF-8, Map is given the mark itself
	}, value)
}
