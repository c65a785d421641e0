package host

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	maxCandidates = 256       // maximum number of candidates compared per walk
	maxReported   = 8         // maximum number of groups in Stats.Unattributed
	maxShown      = 256       // maximum length of their names
	minReported   = 0.01      // fraction of the node's CPU time above which groups are reported
	warnInterval  = time.Hour // minimum interval between warnings
)

// GroupShare is the share of a control group in the CPU time of the node.
type GroupShare struct {
	Group string  // path relative to the root of its hierarchy, or "other"
	Ratio float64 // fraction of the node's CPU time
}

// candidates is the state of detecting workloads that are not attributed. A candidate is a group that looks like a
// container or a job, but is accounted to the system, because its layout is unknown or a limit is exceeded. Candidates
// are found by walks, and their CPU times are compared once per walkInterval.
type candidates struct {
	found map[string]place         // by path, of the current walk
	used  map[string]time.Duration // CPU time of each candidate in the previous comparison; nil before the first one
	busy  time.Duration            // CPU time of the node at the previous comparison
	due   bool                     // a walk has found the candidates to compare
	next  time.Duration            // time of the next comparison
	warn  time.Duration            // time of the next warning
}

// workload matches the names of containers and jobs of common runtimes and batch systems: containers of Docker, Podman,
// containerd, Kata and ECS, tasks of Nomad, containers in the notation SLICE:PREFIX:NAME, pods of kubelets, machines of
// LXC and systemd, and jobs of Slurm, LSF, PBS, Proxmox, HTCondor and OAR.
var workload = regexp.MustCompile(`^(?:(?:[a-z][\w.-]*[-_:])?[0-9a-f]{32,128}(?:\.scope)?|` +
	`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b.*|.*\.slice:.*|` +
	`.*kubepods.*|(?:.*-)?pod[0-9a-f]{8}[-_][\w-]+(?:\.slice)?|lxc\.payload.*|machine-.*\.scope|systemd-nspawn@.*|` +
	`job[_.-]?\d.*|s[0-9A-HJKMNP-TV-Z]{13}|\d+(?:\[\d*\])?\.[\w.-]+|condor_.*slot.*|oar-u\d.*-j\d.*)$`)

// daemon matches the names of systemd units that are usually not workloads.
var daemon = regexp.MustCompile(`\.(?:service|slice|socket|mount|automount|swap)$|^init\.scope$|^session-`)

// addCandidate records that p is accounted to the system, if it is a workload or looks like one. near is true if groups
// next to it match a pattern.
func (h *Host) addCandidate(p place, isWorkload, near bool) {
	name := path.Base(p.dir)
	isWorkload = isWorkload || workload.MatchString(name) || near && !daemon.MatchString(name)
	if !isWorkload || strings.Contains(name, "conmon") {
		return
	}
	c, rel := &h.candidates, p.dir[len(p.hier.dir):]
	if _, ok := c.found[rel]; !ok && len(c.found) < maxCandidates {
		c.found[rel] = p // the first hierarchy takes precedence
	}
}

// compare computes the CPU time that candidates used since the previous comparison, and reports it if it exceeds
// minReported, and patterns that have not matched any group.
func (h *Host) compare(now time.Duration) {
	s := &h.candidates
	s.due, s.next = false, now+walkInterval
	first, used := s.used == nil, make(map[string]time.Duration, len(s.found))
	busy := h.root.total - s.busy
	var counted []string
	shares := []GroupShare{}
	for _, rel := range slices.Sorted(maps.Keys(s.found)) {
		p := s.found[rel]
		n := &node{dir: p.dir, file: p.hier.counter, fd: -1}
		value, _, err := h.read(n)
		if h.closeFile(n); err != nil {
			continue // it was removed
		}
		before, known := s.used[rel]
		used[rel] = value
		if first || busy <= 0 || !known && len(s.used) == maxCandidates || value <= before || h.isAttributed(p) ||
			slices.ContainsFunc(counted, func(up string) bool { return strings.HasPrefix(rel, up+"/") }) {
			continue
		}
		counted = append(counted, rel)
		shares = append(shares, GroupShare{
			sanitise(rel, maxShown, true), min(1, (value-before).Seconds()/busy.Seconds()),
		})
	}
	s.used, s.busy = used, h.root.total
	h.stats.Unattributed = topShares(shares)
	if h.stats.Unattributed != nil && now >= s.warn {
		s.warn = now + warnInterval
		h.log.Warn("CPU time of control groups belongs to no consumer; set --cgroup for them, or report their layout",
			"groups", h.stats.Unattributed)
	}
	reported := h.stats.Unmatched
	h.stats.Unmatched = nil
	for _, g := range h.globs {
		if first || g.matched {
			continue
		}
		if h.stats.Unmatched = append(h.stats.Unmatched, g.pattern); !slices.Contains(reported, g.pattern) {
			h.log.Warn("Pattern of --cgroup has not matched any control group", "pattern", g.pattern)
		}
	}
}

// isAttributed reports whether p is a consumer, part of one, or contains consumers, as the container of a node does.
func (h *Host) isAttributed(p place) bool {
	if up := h.around(p.hier, p.dir+"/"); up.role != system && up.role != slice {
		return true
	}
	for dir, n := range h.byDir {
		if n.id != "" && strings.HasPrefix(dir, p.dir+"/") {
			return true
		}
	}
	return false
}

// topShares returns the largest shares in descending order, with the others combined, or nil if their sum does not
// exceed minReported.
func topShares(all []GroupShare) []GroupShare {
	slices.SortStableFunc(all, func(a, b GroupShare) int { return cmp.Compare(b.Ratio, a.Ratio) })
	sum := 0.0
	for i, g := range all {
		sum += g.Ratio
		if i >= maxReported {
			all[maxReported-1].Ratio += g.Ratio
			all[maxReported-1].Group = "other"
		}
	}
	if sum <= minReported {
		return nil
	}
	return all[:min(len(all), maxReported)]
}

// Findings returns messages about unattributed CPU time and unmatched patterns for the operator of the node.
func (s *Stats) Findings() (all []string) {
	if len(s.Unattributed) > 0 {
		sum, first := 0.0, s.Unattributed[0]
		for _, g := range s.Unattributed {
			sum += g.Ratio
		}
		all = append(all, fmt.Sprintf("groups that look like workloads but belong to no consumer used %.1f %% of the "+
			"CPU time, first of all %s (%.1f %%)", 100*sum, first.Group, 100*first.Ratio))
	}
	for _, p := range s.Unmatched {
		all = append(all, "--cgroup="+p+" has not matched any control group")
	}
	return all
}
