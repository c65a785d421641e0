package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// Files keeps a [View] up to date with two files. Their writer replaces them by rename: a half-written file is
// garbage, and garbage counts as absent.
//
// Set the fields before the first use. An empty file name means that there is no such file, which is not an error.
type Files struct {
	SignalsFile  string // kind Signals
	ProfilesFile string // kind PowerProfiles
	Defaults     policy.Defaults
	Log          *slog.Logger

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
	signals := f.signals.poll(f.SignalsFile, readSignals, f.log())
	profiles := f.profiles.poll(f.ProfilesFile, readProfiles, f.log())
	if !signals && !profiles {
		return
	}
	c := Contents{Sites: f.signals.content, Defaults: f.Defaults}
	if f.signals.err != nil {
		c.Sites = withoutSignals(c.Sites)
	}
	if f.profiles.err == nil {
		c.Profiles, c.DefaultProfile = nodeProfiles(f.profiles.content.Profiles), f.profiles.content.Default
	}
	c.DefaultSite = firstSite(c.Sites)
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

func readSignals(data []byte) ([]*sched.Site, error) {
	var file signalsFile
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, err
	}
	if err := file.check(KindSignals); err != nil {
		return nil, err
	}
	if i := slices.Index(file.Sites, nil); i >= 0 {
		return nil, fmt.Errorf("site %d is empty", i)
	}
	_, err := NewView(file.Sites, nil, "")
	return file.Sites, err
}

func readProfiles(data []byte) (file profilesFile, err error) {
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return file, err
	}
	if err := file.check(KindProfiles); err != nil {
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
	info    os.FileInfo // nil: not seen, or gone
	polled  bool
	err     error // why it cannot be used now
	content T     // of its last good version
}

// poll reads the file if it is not the one seen last, and reports whether anything is different now. What is wrong with
// a file is logged once, not every second. There is no file of an empty path.
func (r *readFile[T]) poll(path string, read func([]byte) (T, error), log *slog.Logger) (changed bool) {
	if path == "" {
		return false
	}
	info, err := os.Stat(path)
	if err == nil {
		if r.polled && sameFile(r.info, info) {
			return false
		}
		var data []byte
		var content T
		if data, err = readWhole(path); err == nil {
			if content, err = read(data); err == nil {
				r.content = content
				log.Info("file loaded", "file", path)
			} else {
				err = fmt.Errorf("reading %s: %w", path, err)
			}
		}
	}
	if _, unread := errors.AsType[*fs.PathError](err); unread {
		info = nil // it may be readable the next time without having changed
	}
	before, first := r.err, !r.polled
	r.info, r.polled, r.err = info, true, err
	if err != nil && (before == nil || before.Error() != err.Error()) {
		log.Warn("file cannot be used: deciding without it", "file", path, "error", err)
	}
	return first || err == nil || before == nil
}

// sameFile also compares identity: a file that replaces another within the resolution of the clock may have its size.
func sameFile(a, b os.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func readWhole(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", path, err)
	case len(data) > maxFileSize:
		return nil, errors.New("it is too large")
	}
	return data, nil
}
