package standalone

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/google/renameio/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json" // decodes integers as int64
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// look is the interval at which the files are checked and pending changes are written.
const look = 2 * time.Second

// Run reloads changed files and writes pending changes until ctx is done.
func (s *Server) Run(ctx context.Context) error {
	for kube.Pause(ctx, look) {
		s.expire()
		if err := errors.Join(s.load(), s.keep()); err != nil && err.Error() != s.failed {
			s.failed = err.Error()
			s.o.Log.Error("Failed to load or store objects, the previous ones remain in use", "error", err)
		}
	}
	return s.keep()
}

// load reads all files if any of them has changed. If one of them is invalid, none takes effect.
func (s *Server) load() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	entries, err := os.ReadDir(s.o.Folder)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	stamp, names := "", []string{}
	for _, entry := range entries {
		name := filepath.Join(s.o.Folder, entry.Name())
		if info, err := os.Stat(name); err == nil && (filepath.Ext(name) == ".yaml" || filepath.Ext(name) == ".yml") {
			stamp, names = stamp+fmt.Sprintln(name, info.Size(), info.ModTime()), append(names, name)
		}
	}
	if stamp == s.read {
		return nil
	}
	found := map[schema.GroupVersionKind]map[string]*object{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err == nil {
			err = readFile(text, found)
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
	}
	s.read, s.failed = stamp, ""
	for k := range s.objects {
		if ofFiles(k) {
			s.replace(k, found[k], keepStatus)
		}
	}
	return nil
}

// readFile adds the objects of a file. Unknown fields are an error.
func readFile(text []byte, found map[schema.GroupVersionKind]map[string]*object) error {
	docs := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var o *object
		if err == nil {
			o, err = readObject(doc)
		}
		switch {
		case err != nil:
			return fmt.Errorf("document %d: %w", number, err)
		case o == nil:
			continue
		}
		k, key := o.GroupVersionKind(), o.GetNamespace()+"/"+o.GetName()
		if found[k] == nil {
			found[k] = map[string]*object{}
		}
		if found[k][key] != nil {
			return fmt.Errorf("document %d: duplicate %s %s", number, k.Kind, key)
		}
		found[k][key] = o
	}
}

func readObject(doc []byte) (*object, error) {
	o := &object{}
	if err := yaml.Unmarshal(doc, &o.Object); err != nil || len(o.Object) == 0 {
		return nil, err
	}
	k := o.GroupVersionKind()
	typed, err := scheme.New(k)
	if err != nil || !ofFiles(k) {
		return nil, fmt.Errorf("%s %s in a file: want GridZone, PowerProfile, EnergyPolicy or EnergyBudget "+
			"of %s", o.GetAPIVersion(), k.Kind, v1alpha1.GroupVersion)
	}
	if err = yaml.UnmarshalStrict(doc, typed); err == nil {
		o.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed) // normalize the representation
	}
	if err == nil && o.GetName() == "" {
		err = errors.New("metadata.name is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", k.Kind, o.GetName(), err)
	}
	delete(o.Object, "status")
	if ofCluster[k.Kind] {
		o.SetNamespace("")
	} else if o.GetNamespace() == "" {
		o.SetNamespace(v1alpha1.SystemNamespace)
	}
	return o, nil
}

// ErrUncertain is returned for a failed write after which State may be either the previous or the new file.
var ErrUncertain = errors.New("the file may or may not have been replaced")

// restore reads State. If it cannot be read, it is unknown where each Job runs, so none must be started again.
// Requests for Jobs are then rejected and State is not written until an operator has moved the file away. All other
// requests are served.
func (s *Server) restore() {
	text, err := os.ReadFile(s.o.State)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var all []map[string]any
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	for _, content := range all {
		o := &object{Object: content}
		if o.GetName() == "" {
			err = errors.Join(err, errors.New("an object has no name"))
		}
		if of := s.objects[o.GroupVersionKind()]; of != nil && err == nil {
			of[o.GetNamespace()+"/"+o.GetName()] = o
		}
		version, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
		s.issued = max(s.issued, version)
	}
	if err == nil {
		return
	}
	for _, of := range s.objects {
		clear(of)
	}
	s.lost = fmt.Errorf("reading %s: %w: Jobs are neither accepted nor moved until the file has been restored or "+
		"moved away and this program has been restarted", s.o.State, err)
	s.o.Log.Error("Failed to read the stored objects", "err", s.lost)
}

// keep writes State if it does not contain all published changes.
func (s *Server) keep() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.repair(); err != nil || !s.dirty {
		return err
	}
	return s.write(nil)
}

// repair writes State again if it may contain an unpublished change. It returns an error if that fails, or if State
// could not be read. The caller must hold writing.
func (s *Server) repair() error {
	if !s.uncertain {
		return s.lost
	}
	return s.write(nil)
}

// write writes all stored objects, with an unpublished change applied if it is not nil. The caller must hold
// writing.
func (s *Server) write(change *event) error {
	all := []*object{}
	for k, objects := range s.objects {
		if !kept(k) {
			continue
		}
		if change != nil && change.kind == k {
			objects = maps.Clone(objects)
			change.apply(objects)
		}
		all = slices.AppendSeq(all, maps.Values(objects))
	}
	text, err := json.Marshal(all)
	if err == nil {
		err = s.o.Write(s.o.State, text)
	}
	if err != nil {
		s.uncertain = s.uncertain || change != nil && errors.Is(err, ErrUncertain)
		return fmt.Errorf("writing the stored objects: %w", err)
	}
	s.dirty, s.uncertain = false, false
	return nil
}

// replaceFile atomically replaces a file. It returns after the change is durable.
func replaceFile(file string, data []byte) error {
	dir := filepath.Dir(file)
	err := renameio.WriteFile(file, data, 0o600, renameio.WithTempDir(dir))
	if _, renaming := errors.AsType[*os.LinkError](err); err != nil && !renaming {
		return err
	}
	var parent *os.File
	if err == nil {
		parent, err = os.Open(dir)
	}
	if err == nil {
		err = errors.Join(parent.Sync(), parent.Close())
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return nil
}
