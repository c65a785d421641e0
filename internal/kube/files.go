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

// Files keeps a [View] up to date with two files. The files must be replaced by rename, because a partially written
// file is invalid, and an invalid file is treated as absent.
//
// The fields must be set before first use. If a file name is empty, no such file is used.
type Files struct {
	SignalsFile  string // file of kind Signals
	ProfilesFile string // file of kind PowerProfiles
	Defaults     policy.Defaults
	Log          *slog.Logger // must not be nil

	mu       sync.Mutex // held while refreshing; View does not need it
	signals  File[[]*sched.Site]
	profiles File[profilesFile]
	view     atomic.Pointer[View]
}

// API version and kinds of the files.
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

// signalsFile is the serialized form of sites with their signals. The first site is the default.
type signalsFile struct {
	header `json:",inline"`
	Sites  []*sched.Site `json:"sites"`
}

// profilesFile is the serialized form of power profiles.
type profilesFile struct {
	header   `json:",inline"`
	Default  string            `json:"default,omitempty"`
	Profiles []*energy.Profile `json:"profiles"`
}

// View returns the current view. It does not block and never returns nil.
func (f *Files) View() *View {
	return cmp.Or(f.view.Load(), &nothing)
}

// nothing is the view before the files have been read.
var nothing View

// Run refreshes the view every second until ctx is done.
func (f *Files) Run(ctx context.Context) error {
	f.Refresh()
	for Pause(ctx, pollInterval) {
		f.Refresh()
	}
	return nil
}

// Refresh checks the files immediately and publishes a new view if any of them has changed.
func (f *Files) Refresh() {
	f.mu.Lock()
	defer f.mu.Unlock()
	newSignals := f.signals.Poll(f.SignalsFile, readSignals, f.Log)
	newProfiles := f.profiles.Poll(f.ProfilesFile, readProfiles, f.Log)
	if !newSignals && !newProfiles && f.view.Load() != nil {
		return
	}
	sites, profiles := f.signals.Content, f.profiles.Content
	if f.signals.Err != nil {
		sites = withoutSignals(sites)
	}
	if f.profiles.Err != nil {
		profiles = profilesFile{}
	}
	c := contentsOf(sites, profiles.Profiles, profiles.Default)
	c.Defaults = f.Defaults
	v, err := c.View()
	if err != nil {
		// Each file has been validated separately, and the files do not refer to each other.
		f.Log.Error("Failed to build a view, the previous one remains in use", "error", err)
		return
	}
	f.view.Store(v)
}

// parse decodes a file of the given kind into form. head must be the header in form.
func parse(data []byte, kind string, form any, head *header) error {
	if err := yaml.UnmarshalStrict(data, form); err != nil {
		return err
	}
	if *head != (header{APIVersion, kind}) {
		return fmt.Errorf("apiVersion and kind are %q %q: want %q %q", head.APIVersion, head.Kind, APIVersion, kind)
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

// File is the cached state of a file. The zero value has not been read.
type File[T any] struct {
	Err     error // reason why the current version cannot be used
	Content T     // content of the last valid version

	info os.FileInfo // nil if the file has not been read, does not exist or is not readable
}

// Poll reads the file if it has changed and reports whether the result has changed. Each error is logged once
// rather than every second. If path is empty, Poll does nothing.
func (r *File[T]) Poll(path string, read func([]byte) (T, error), log *slog.Logger) (changed bool) {
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
		// A replaced file may have the same time and size within the resolution of the clock, so compare its
		// identity as well.
		return false
	case !info.Mode().IsRegular() || info.Size() > maxFileSize:
		err = errors.New("not a regular file, or too large")
	default:
		if data, err = os.ReadFile(path); err != nil {
			info = nil // the file may become readable without a change
		} else if err = panics.Try(log, "files", path, func() (err error) {
			content, err = read(data)
			return err
		}); err == nil {
			r.Content = content
			log.Info("Loaded file", "file", path)
		}
	}
	before := r.Err
	r.info, r.Err = info, err
	if err != nil && (before == nil || before.Error() != err.Error()) {
		log.Warn("File cannot be used and is ignored", "file", path, "error", err)
	}
	return err == nil || before == nil
}
