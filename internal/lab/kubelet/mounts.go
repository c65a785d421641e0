package kubelet

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mounts maps the mount paths of a container to files on this machine, longest path first.
type mounts []mount

type mount struct{ path, here string }

func (p *pod) mounts(c *corev1.Container) mounts {
	var all mounts
	for i := range c.VolumeMounts {
		v := &c.VolumeMounts[i]
		all = append(all, mount{filepath.Clean(v.MountPath), filepath.Join(p.volumeDir(v.Name), v.SubPath)})
	}
	slices.SortStableFunc(all, func(a, b mount) int { return cmp.Compare(len(b.path), len(a.path)) })
	return all
}

// find returns the file on this machine for a mount path.
func (m mounts) find(path string) (string, bool) {
	for _, one := range m {
		if one.path == path {
			return one.here, true
		}
	}
	return "", false
}

// rewrite replaces every path below a mount in a text.
func (m mounts) rewrite(text string) string {
	var b strings.Builder
bytes:
	for i := 0; i < len(text); {
		if text[i] == '/' && (i == 0 || !inPath(text[i-1])) {
			for _, one := range m {
				end := i + len(one.path)
				if strings.HasPrefix(text[i:], one.path) && (end == len(text) || text[end] == '/' ||
					!inPath(text[end])) {
					b.WriteString(one.here)
					i = end
					continue bytes
				}
			}
		}
		b.WriteByte(text[i])
		i++
	}
	return b.String()
}

// inPath reports whether a byte can be part of a path.
func inPath(c byte) bool {
	return c == '/' || c == '.' || c == '-' || c == '_' || c == '~' || c >= 0x80 ||
		'0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
