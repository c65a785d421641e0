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

// appendLabels appends the labels that identify a consumer. Labels with unknown names are empty, which is
// equivalent to an absent label in Prometheus.
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

// maxLabel is the maximum length of a label value, in bytes.
const maxLabel = 256

// appendLabel appends name="value". Values may contain arbitrary bytes. If a value is too long, not valid UTF-8 or
// contains control characters, it is sanitized and followed by a digest, so that different values remain different.
// The same applies to values that already end with such a digest.
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

// digested matches values that end with a digest.
var digested = regexp.MustCompile(`~[0-9a-f]{16}$`)

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// shorten truncates a value and replaces characters that cannot be exported.
func shorten(value string) string {
	value = value[:min(len(value), maxLabel/2)]
	return strings.Map(func(r rune) rune {
		if isControl(r) {
			return utf8.RuneError
		}
		return r // Map replaces invalid UTF-8 itself
	}, value)
}
