package exposition

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode/utf8"

	dto "github.com/prometheus/client_model/go"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// pairs returns labels, given alternating names and values. It makes the values valid, and retains the slice.
func pairs(namesAndValues ...string) []*dto.LabelPair {
	all := make([]dto.LabelPair, len(namesAndValues)/2)
	labels := make([]*dto.LabelPair, len(all))
	for i := range all {
		name, value := &namesAndValues[2*i], &namesAndValues[2*i+1]
		*value = label(*value)
		all[i].Name, all[i].Value, labels[i] = name, value, &all[i]
	}
	return labels
}

// labelsOf returns the labels that identify a consumer. Unknown names are empty, which is equivalent to an absent label
// in Prometheus.
func labelsOf(id string, k kind, names podNames) []*dto.LabelPair {
	switch k {
	case kindContainer:
		uid, container, _ := energy.PodOf(id)
		return pairs("pod_uid", uid, "container_id", container, "namespace", names.namespace, "pod", names.pod,
			"container", names.container)
	case kindVM:
		name, _ := energy.VMOf(id)
		return pairs("vm", name)
	case kindCgroup:
		path, _ := energy.CgroupOf(id)
		return pairs("cgroup", path)
	}
	return nil
}

// maxLabel is the maximum length of a label value, in bytes.
const maxLabel = 256

// label returns a valid label value. If a value is too long, not valid UTF-8 or contains control characters, it is
// cleaned and followed by a digest, so that different values remain different. The same applies to values that
// already end with such a digest.
func label(value string) string {
	if len(value) > maxLabel || !utf8.ValidString(value) || strings.ContainsFunc(value, isControl) ||
		digested.MatchString(value) {
		digest := sha256.Sum256([]byte(value))
		return shorten(value) + "~" + hex.EncodeToString(digest[:8])
	}
	return value
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
