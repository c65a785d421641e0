package host

import (
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// ConsumerOf returns the consumer of a process according to its control group, or "" if it is unknown, for example
// because the process has exited. If the agent runs in its own cgroup namespace, paths start with "/..". In that
// case, the consumer is determined from the container ID in the path.
func (h *Host) ConsumerOf(pid int) string {
	text, err := h.io.slurp(filepath.Join(h.opts.Proc, strconv.Itoa(pid)), "/cgroup", maxCmdline)
	if err != nil {
		return ""
	}
	seen := false
	groups := groupsOf(text)
	for _, one := range h.hierarchies {
		group := groups[one.version]
		if group == "" || len(group) > maxPath || strings.HasPrefix(group, "/..") {
			continue
		}
		seen = true
		for dir := filepath.Join(one.dir, group); len(dir) > len(one.dir); dir = path.Dir(dir) {
			if n := h.byDir[dir]; n != nil && n.published() {
				return n.id
			}
		}
	}
	if seen {
		return energy.System
	}
	return h.byContainer(text)
}

// byContainer returns the consumer of the first known container ID in text.
func (h *Host) byContainer(text []byte) string {
	for element := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == '/' || r == '\n' }) {
		id := containerID(element)
		for _, n := range h.ordered {
			if id != "" && strings.HasSuffix(n.id, "/"+id) {
				return n.id
			}
		}
	}
	return ""
}
