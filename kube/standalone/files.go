package standalone

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json" // integers stay integers
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
)

// look is how often files are looked at, and whether there is something to keep.
const look = 2 * time.Second

// Run follows the files and keeps what was written until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	for kube.Pause(ctx, look) {
		s.expire()
		if err := errors.Join(s.load(), s.keep()); err != nil && err.Error() != s.failed {
			s.failed = err.Error()
			s.o.Log.Error("what was read before goes on counting", "error", err)
		}
	}
	return s.keep()
}

// load reads the files if one of them has changed. All of them count, or none.
func (s *Server) load() error {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, objects := range s.objects {
		if !ofFiles(k) {
			continue
		}
		for key, o := range found[k] {
			if was := objects[key]; was != nil {
				keepStatus(o, was)
			}
		}
		s.replace(k, found[k])
	}
	return nil
}

// readFile adds the objects of a file. Fields that there are not are an error.
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
			return fmt.Errorf("document %d: %s %s is there twice", number, k.Kind, key)
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
		return nil, fmt.Errorf("%s %s is read from no file: want GridZone, PowerProfile, EnergyPolicy or EnergyBudget "+
			"of %s", o.GetAPIVersion(), k.Kind, v1alpha1.GroupVersion)
	}
	if err = yaml.UnmarshalStrict(doc, typed); err == nil {
		o.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed) // as the kind writes it
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

// restore reads what was kept.
func (s *Server) restore() error {
	text, err := os.ReadFile(s.o.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all []map[string]any
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w: move it away to begin with the files alone", s.o.State, err)
	}
	for _, content := range all {
		o := &object{Object: content}
		if of := s.objects[o.GroupVersionKind()]; of != nil {
			of[o.GetNamespace()+"/"+o.GetName()] = o
		}
	}
	return nil
}

// keep writes what is to be kept, if it has changed.
func (s *Server) keep() error {
	s.keeping.Lock() // who waits for another finds its own change written
	defer s.keeping.Unlock()
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = false
	var all []*object
	for k := range s.objects {
		if dirty && kept(k) {
			all = append(all, s.all(k, func(*object) bool { return true })...)
		}
	}
	s.mu.Unlock()
	if !dirty {
		return nil
	}
	text, err := json.Marshal(all)
	if err == nil {
		err = renameio.WriteFile(s.o.State, text, 0o600)
	}
	if err != nil {
		s.mu.Lock()
		s.dirty = true
		s.mu.Unlock()
		return fmt.Errorf("keeping statuses: %w", err)
	}
	return nil
}
