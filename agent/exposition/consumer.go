package exposition

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/energy/batch"
)

const qualities = int(energy.Measured) + 1

// Modes: why energy is a consumer's.
const (
	dynamic = iota // because it computed
	shared         // its part of what the node draws anyway
	modes
)

// An account is what one consumer, or several, used since the agent began.
type account struct {
	energy [modes][qualities]energy.Microjoules
	cpu    time.Duration
}

func (a *account) add(b *account) {
	for mode := range b.energy {
		for quality, v := range b.energy[mode] {
			a.energy[mode][quality] += v
		}
	}
	a.cpu += b.cpu
}

// kind is a kind of consumers: each has metrics of its own.
type kind uint8

const (
	kindContainer kind = iota // also what a pod used beyond its living containers, with an empty container_id
	kindVM
	kindCgroup
	kindSystem
	kindUnknown
)

func kindOf(id string) kind {
	if _, _, ok := energy.PodOf(id); ok {
		return kindContainer
	}
	if _, ok := energy.VMOf(id); ok {
		return kindVM
	}
	if _, ok := energy.CgroupOf(id); ok {
		return kindCgroup
	}
	if id == energy.System {
		return kindSystem
	}
	return kindUnknown
}

// A consumer has series of its own.
type consumer struct {
	id      string
	kind    kind
	labels  []byte // replaced, never changed
	account account
	quality energy.Quality // of its last share
	seen    time.Duration
	ended   bool
	endedAt time.Duration
}

func (c *consumer) isOf(podUID string) bool {
	uid, _, ok := energy.PodOf(c.id)
	return ok && uid == podUID
}

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
