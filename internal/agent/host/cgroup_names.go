package host

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// role is the kind of a control group or node.
type role uint8

const (
	other     role = iota // a service or session, accounted to the system
	system                // the root node
	slice                 // contains consumers: all pods, a QoS class, or virtual machines
	pod                   //
	container             //
	vm                    //
	process               // a virtual machine without its own group
	group                 // matches a pattern of Options.Groups
	ignored               // inside a consumer, and accounted to it
)

// Maximum lengths of names. Groups with longer names are not separate consumers.
const (
	maxUID    = 64
	maxVMName = 128
	maxGroup  = 512
)

// below returns the role of the group name inside the group base, and the key of its consumer: the UID of a pod, the
// ID of a container in the group of its pod, UID/ID of a container elsewhere, or the name and number of a virtual
// machine. in is the role of base, where slice means a group of pods.
//
// It supports the layouts of both cgroup drivers of the kubelet, below any parent groups:
//
//	kubepods/burstable/pod<uid>/<container>
//	kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/cri-containerd-<container>.scope
//
// If the kubelet uses systemd and the container runtime does not, containers are outside the group of their pod, at the
// root or below the service of the runtime:
//
//	kubepods-burstable-pod<uid>.slice:cri-containerd:<container>
//	kubepods-burstable-pod<uid>.slice/<container>
//
// It also supports the layouts of libvirt:
//
//	machine/qemu-3-name.libvirt-qemu
//	machine.slice/machine-qemu\x2d3\x2dname.scope
func below(in role, base, name string) (role, string) {
	id := containerID(name)
	switch {
	case in == container || in == vm || in == ignored:
		return ignored, ""
	case in == pod:
		if id != "" {
			return container, id
		}
		return ignored, ""
	}
	if uid := cmp.Or(unitUID(base), unitUID(name)); uid != "" && id != "" {
		return container, uid + "/" + id
	}
	switch {
	case in == slice && isClass(name), isKubepods(name):
		return slice, ""
	case in == slice:
		if uid := podUID(name); uid != "" {
			return pod, uid
		}
		return ignored, ""
	case unitUID(name) != "" && strings.HasSuffix(name, ".slice"):
		return slice, ""
	}
	if machine := machineName(name); machine != "" {
		return vm, machine
	}
	return other, ""
}

// isKubepods reports whether name is the group of all pods. k3s, kind and --cgroup-root nest it in other groups.
func isKubepods(name string) bool {
	return name == "kubepods" || name == "kubepods.slice" || strings.HasSuffix(name, "-kubepods.slice")
}

// isClass reports whether name is the group of a QoS class.
func isClass(name string) bool {
	return slices.Contains([]string{"burstable", "besteffort", "guaranteed"}, name) ||
		strings.HasSuffix(name, "kubepods-burstable.slice") || strings.HasSuffix(name, "kubepods-besteffort.slice")
}

// podUID returns the UID of a pod, or "" if name is not the group of a pod.
func podUID(name string) string {
	if uid, ok := strings.CutPrefix(name, "pod"); ok && !strings.HasSuffix(name, ".slice") {
		return validUID(uid)
	}
	if strings.HasSuffix(name, ".slice") {
		return unitUID(name)
	}
	return ""
}

// unitUID returns the UID of the pod in the name of its systemd slice or of a container in the notation
// SLICE:PREFIX:NAME, or "". The systemd driver replaces dashes in the UID with underscores, because systemd uses dashes
// to separate levels.
func unitUID(name string) string {
	unit, _, _ := strings.Cut(name, ":")
	if parts := podUnit.FindStringSubmatch(unit); parts != nil {
		return validUID(strings.ReplaceAll(parts[1], "_", "-"))
	}
	return ""
}

var podUnit = regexp.MustCompile(`^(?:[\w.-]+-)?kubepods(?:-burstable|-besteffort)?-pod([\w.-]+)\.slice$`)

func validUID(uid string) string {
	if len(uid) > maxUID || !word.MatchString(uid) || strings.Trim(uid, ".") == "" {
		return ""
	}
	return uid
}

// containerID returns the ID of a container, or "" for other groups in a pod, such as CRI-O's monitors and
// init.scope.
func containerID(name string) string {
	if parts := containerName.FindStringSubmatch(name); parts != nil {
		return parts[1] + parts[2]
	}
	return ""
}

// containerName matches a container ID, optionally in a scope or in the notation SLICE:PREFIX:NAME with the prefix of a
// container runtime.
var containerName = regexp.MustCompile(`^(?:([0-9a-f]{12,128})|(?:[\w.-]+\.slice:)?` +
	`(?:cri-containerd|containerd|crio|docker|libpod|cri-o|nerdctl)[-:]([0-9a-f]{12,128})(?:\.scope)?)$`)

// word matches valid pod UIDs, except that names of dots only must be rejected separately because they are relative
// paths.
var word = regexp.MustCompile(`^[\w.-]+$`)

// glob is a path pattern.
type glob struct {
	pattern  string
	elements []string
	matched  bool // at least one group matched
}

func parseGlobs(patterns []string) ([]*glob, error) {
	var globs []*glob
	for _, p := range patterns {
		elements := strings.Split(strings.Trim(p, "/"), "/")
		for _, e := range elements {
			if _, err := path.Match(e, ""); err != nil || e == "" || e == "." || e == ".." {
				return nil, fmt.Errorf("invalid cgroup pattern %q: invalid element %q", p, e)
			}
		}
		globs = append(globs, &glob{pattern: p, elements: elements})
	}
	return globs, nil
}

// match reports whether the path of a group matches a pattern, whether groups inside it may match, and whether it is
// near to a match, i.e. a pattern matches its parent and continues with a wildcard.
func match(globs []*glob, rel string) (full, within, near bool) {
	parent, name := path.Split(rel)
	depth := strings.Count(rel, "/") + 1
	for _, g := range globs {
		if depth > len(g.elements) {
			continue
		}
		above, _ := path.Match(strings.Join(g.elements[:depth-1], "/"), strings.TrimSuffix(parent, "/"))
		if !above {
			continue
		}
		matches, _ := path.Match(g.elements[depth-1], name)
		g.matched = g.matched || matches && depth == len(g.elements)
		full = full || matches && depth == len(g.elements)
		within = within || matches && depth < len(g.elements)
		near = near || strings.ContainsAny(g.elements[depth-1], `*?[`)
	}
	return full, within, near
}

// placeOf returns the outermost pod or virtual machine in a path as listed in /proc/PID/cgroup. For a container outside
// the group of its pod, it returns the pod.
func placeOf(rel string) (role, string) {
	in, base := other, ""
	for name := range strings.SplitSeq(strings.Trim(rel, "/"), "/") {
		next, key := below(in, base, name)
		switch uid, _, _ := strings.Cut(key, "/"); next {
		case container:
			return pod, uid
		case pod, vm:
			return next, key
		}
		in, base = next, name
	}
	return other, ""
}
