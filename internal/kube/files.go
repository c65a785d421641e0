package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Files keeps a [View] up to date with two files. Their writer replaces them by rename: a half-written file is
// garbage, and garbage counts as absent.
//
// Set the fields before the first use. An empty file name means that there is no such file, which is not an error.
type Files struct {
	SignalsFile  string // kind Signals
	ProfilesFile string // kind PowerProfiles
	Defaults     policy.Defaults
	Log          *slog.Logger // must be set

	mu       sync.Mutex // held by the one that refreshes; readers of the view never wait
	signals  readFile[[]*sched.Site]
	profiles readFile[profilesFile]
	view     atomic.Pointer[View]
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
	return cmp.Or(f.view.Load(), &nothing)
}

// nothing is what is known before the first look.
var nothing View

// Run refreshes the view every second until ctx ends.
func (f *Files) Run(ctx context.Context) error {
	f.Refresh()
	for Pause(ctx, pollInterval) {
		f.Refresh()
	}
	return nil
}

// Refresh looks at the files at once and publishes another view if one of them changed.
func (f *Files) Refresh() {
	f.mu.Lock()
	defer f.mu.Unlock()
	newSignals := f.signals.poll(f.SignalsFile, readSignals, f.Log)
	newProfiles := f.profiles.poll(f.ProfilesFile, readProfiles, f.Log)
	if !newSignals && !newProfiles && f.view.Load() != nil {
		return
	}
	sites, profiles := f.signals.content, f.profiles.content
	if f.signals.err != nil {
		sites = withoutSignals(sites)
	}
	if f.profiles.err != nil {
		profiles = profilesFile{}
	}
	c := contentsOf(sites, profiles.Profiles, profiles.Default)
	c.Defaults = f.Defaults
	v, err := c.View()
	if err != nil {
		// Each file was checked alone when it was read, and they do not refer to each other.
		f.Log.Error("publishing a view: the last one holds", "error", err)
		return
	}
	f.view.Store(v)
}

// parse reads a file of a kind, whose header comes to stand in head, into its form.
func parse(data []byte, kind string, form any, head *header) error {
	if err := yaml.UnmarshalStrict(data, form); err != nil {
		return err
	}
	if *head != (header{APIVersion, kind}) {
		return fmt.Errorf("it is %q %q: want %q %q", head.APIVersion, head.Kind, APIVersion, kind)
	}
	return nil
}

func readSignals(data []byte) ([]*sched.Site, error) {
	var file signalsFile
	if err := parse(data, KindSignals, &file, &file.header); err != nil {
		return nil, err
	}
	if i := slices.Index(file.Sites, nil); i >= 0 {
		return nil, fmt.Errorf("site %d is empty", i)
	}
	_, err := NewView(file.Sites, nil, "")
	return file.Sites, err
}

func readProfiles(data []byte) (file profilesFile, err error) {
	if err := parse(data, KindProfiles, &file, &file.header); err != nil {
		return file, err
	}
	if i := slices.Index(file.Profiles, nil); i >= 0 {
		return file, fmt.Errorf("profile %d is empty", i)
	}
	_, err = NewView(nil, file.Profiles, file.Default)
	return file, err
}

// readFile is a file as it was last seen.
type readFile[T any] struct {
	info    os.FileInfo // nil: not seen, gone, or not readable
	err     error       // why it cannot be used now
	content T           // of its last good version
}

var errPanicked = errors.New("reading it panicked")

// parsed is what read makes of a file.
func parsed[T any](path string, data []byte, read func([]byte) (T, error), log *slog.Logger) (content T, err error) {
	if !panics.Survive(log, "files", path, func() { content, err = read(data) }) {
		err = errPanicked
	}
	return content, err
}

// poll reads the file if it is not the one seen last, and reports whether anything is different now. What is wrong with
// a file is logged once, not every second. There is no file of an empty path.
func (r *readFile[T]) poll(path string, read func([]byte) (T, error), log *slog.Logger) (changed bool) {
	if path == "" {
		return false
	}
	info, err := os.Stat(path)
	var data []byte
	var content T
	switch {
	case err != nil:
	case r.info != nil && os.SameFile(r.info, info) && r.info.ModTime().Equal(info.ModTime()) &&
		r.info.Size() == info.Size():
		// A replacement within the clock's resolution may have the same time and size, so identity counts too.
		return false
	case !info.Mode().IsRegular() || info.Size() > maxFileSize:
		err = errors.New("it is no regular file, or too large")
	default:
		if data, err = os.ReadFile(path); err != nil {
			info = nil // it may be readable the next time without having changed
		} else if content, err = parsed(path, data, read, log); err == nil {
			r.content = content
			log.Info("file loaded", "file", path)
		}
	}
	before := r.err
	r.info, r.err = info, err
	if err != nil && (before == nil || before.Error() != err.Error()) {
		log.Warn("file cannot be used: deciding without it", "file", path, "error", err)
	}
	return err == nil || before == nil
}
