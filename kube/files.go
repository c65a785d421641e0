package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// Files keeps a [View] up to date with two files. Whoever writes them replaces them by rename: a half-written file is
// garbage, and garbage counts as absent.
//
// Set the fields before the first use. An empty file name means that there is no such file, which is not an error.
type Files struct {
	SignalsFile  string // kind Signals
	ProfilesFile string // kind PowerProfiles
	Defaults     policy.Defaults
	Log          *slog.Logger

	mu                sync.Mutex // held by the one that refreshes; readers of the view never wait
	signals, profiles knowledgeFile
	sites             []*sched.Site // of the last good signals file
	hardware          []*energy.Profile
	defaultProfile    string
	view              atomic.Pointer[View]
}

// What heads the files.
const (
	APIVersion   = "kubenergy.io/v1alpha1"
	KindSignals  = "Signals"
	KindProfiles = "PowerProfiles"
)

const (
	pollInterval = time.Second
	maxFileSize  = 64 << 20
)

type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

func (h header) check(kind string) error {
	if h.APIVersion != APIVersion || h.Kind != kind {
		return fmt.Errorf("it is %q %q: want %q %q", h.APIVersion, h.Kind, APIVersion, kind)
	}
	return nil
}

// signalsFile is the written form of sites with their signals; the first site is the default one.
type signalsFile struct {
	header `json:",inline"`
	Sites  []*sched.Site `json:"sites"`
}

// profilesFile is the written form of power profiles.
type profilesFile struct {
	header   `json:",inline"`
	Default  string            `json:"default,omitempty"`
	Profiles []*energy.Profile `json:"profiles"`
}

// View returns what is known now. It never waits and never returns nil.
func (f *Files) View() *View {
	if v := f.view.Load(); v != nil {
		return v
	}
	return &nothing
}

// nothing is what is known before the first look.
var nothing View

// Run refreshes the view every second until ctx ends.
func (f *Files) Run(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		f.Refresh()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Refresh looks at the files at once and publishes another view if one of them changed.
func (f *Files) Refresh() {
	f.mu.Lock()
	defer f.mu.Unlock()
	signals, profiles := false, false
	if f.SignalsFile != "" {
		signals = f.signals.poll(f.SignalsFile, f.readSignals, f.log())
	}
	if f.ProfilesFile != "" {
		profiles = f.profiles.poll(f.ProfilesFile, f.readProfiles, f.log())
	}
	if !signals && !profiles {
		return
	}
	if !f.profiles.good() {
		f.hardware, f.defaultProfile = nil, ""
	}
	sites := f.sites
	if !f.signals.good() {
		sites = withoutSignals(sites)
	}
	c := Contents{Sites: sites, DefaultSite: firstSite(sites), DefaultProfile: f.defaultProfile, Defaults: f.Defaults}
	for _, p := range f.hardware {
		c.Profiles = append(c.Profiles, &NodeProfile{Profile: *p})
	}
	v, err := c.View()
	if err != nil {
		// Each file was checked alone when it was read, and they do not refer to each other.
		f.log().Error("publishing a view: the last one holds", "error", err)
		return
	}
	f.view.Store(v)
}

func (f *Files) log() *slog.Logger {
	if f.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return f.Log
}

func (f *Files) readSignals(data []byte) error {
	var file signalsFile
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return err
	}
	if err := file.check(KindSignals); err != nil {
		return err
	}
	for i, s := range file.Sites {
		if s == nil {
			return fmt.Errorf("site %d is empty", i)
		}
	}
	if _, err := NewView(file.Sites, nil, ""); err != nil {
		return err
	}
	f.sites = file.Sites
	f.log().Info("signals loaded", "file", f.SignalsFile, "sites", len(file.Sites))
	return nil
}

func (f *Files) readProfiles(data []byte) error {
	var file profilesFile
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return err
	}
	if err := file.check(KindProfiles); err != nil {
		return err
	}
	for i, p := range file.Profiles {
		if p == nil {
			return fmt.Errorf("profile %d is empty", i)
		}
	}
	if _, err := NewView(nil, file.Profiles, file.Default); err != nil {
		return err
	}
	f.hardware, f.defaultProfile = file.Profiles, file.Default
	f.log().Info("power profiles loaded", "file", f.ProfilesFile, "profiles", len(file.Profiles))
	return nil
}

// knowledgeFile remembers the state in which a file was last seen.
type knowledgeFile struct {
	info   os.FileInfo // nil: not seen, or gone
	polled bool
	err    error
}

func (k *knowledgeFile) good() bool { return k.polled && k.err == nil }

// poll reads the file if it is not the one seen last, and reports whether anything is different now. What is wrong with
// a file is logged once, not every second.
func (k *knowledgeFile) poll(path string, read func([]byte) error, log *slog.Logger) (changed bool) {
	info, err := os.Stat(path)
	if err == nil && k.polled && sameFile(k.info, info) {
		return false
	}
	if err == nil {
		err = readWhole(path, read)
	}
	if _, unread := errors.AsType[*fs.PathError](err); unread {
		info = nil // it may be readable the next time without having changed
	}
	before := k.err
	first := !k.polled
	k.info, k.polled, k.err = info, true, err
	if err != nil && (before == nil || before.Error() != err.Error()) {
		log.Warn("file cannot be used: deciding without it", "file", path, "error", err)
	}
	return first || err == nil || before == nil
}

// sameFile also compares identity: a file that replaces another within the resolution of the clock may have its size.
func sameFile(a, b os.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func readWhole(path string, read func([]byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading %s: %w", path, err)
	case len(data) > maxFileSize:
		return errors.New("it is too large")
	}
	if err := read(data); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}
