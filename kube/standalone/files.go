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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json" // integers stay integers
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// look is how often files are looked at, and whether there is something to keep.
const look = 2 * time.Second

// Run follows the files and keeps what was written until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.keep()
		case <-tick.C:
		}
		for _, err := range []error{s.load(), s.keep()} {
			if err != nil && err.Error() != s.failed {
				s.failed = err.Error()
				s.o.Log.Error("what was read before goes on counting", "error", err)
			}
		}
	}
}

// load reads the files if one of them has changed. All of them count, or none.
func (s *Server) load() error {
	names, err := filepath.Glob(filepath.Join(s.o.Folder, "*.y*ml"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(s.o.Folder); err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	stamp := ""
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			stamp += fmt.Sprintln(name, info.Size(), info.ModTime())
		}
	}
	if stamp == s.read {
		return nil
	}
	found := map[string]*unstructured.Unstructured{}
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
	s.replace(found)
	return nil
}

// readFile adds the objects of a file. Fields that there are not are an error.
func readFile(text []byte, found map[string]*unstructured.Unstructured) error {
	docs := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var o *unstructured.Unstructured
		if err == nil {
			o, err = readObject(doc)
		}
		switch {
		case err != nil:
			return fmt.Errorf("document %d: %w", number, err)
		case o == nil:
			continue
		}
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if found[key] != nil {
			return fmt.Errorf("document %d: %s is there twice", number, key)
		}
		found[key] = o
	}
}

func readObject(doc []byte) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(doc, &o.Object); err != nil || len(o.Object) == 0 {
		return nil, err
	}
	k := kindOf(o.GetAPIVersion(), o.GetKind())
	if k == nil || k.read == nil {
		return nil, fmt.Errorf("%s %s is not read from files: want GridZone, PowerProfile, EnergyPolicy, EnergyBudget "+
			"or Namespace", o.GetAPIVersion(), o.GetKind())
	}
	typed := k.read()
	if err := yaml.UnmarshalStrict(doc, typed); err != nil {
		return nil, fmt.Errorf("%s %s: %w", k.name, o.GetName(), err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed) // as the kind writes it
	if err != nil {
		return nil, err
	}
	o.Object = content
	delete(o.Object, "status")
	switch {
	case o.GetName() == "":
		return nil, fmt.Errorf("%s: metadata.name is missing", k.name)
	case k.cluster:
		o.SetNamespace("")
	case o.GetNamespace() == "":
		o.SetNamespace(v1alpha1.SystemNamespace)
	}
	return o, nil
}

// replace makes the objects of kinds that files have what the files say. Statuses stay.
func (s *Server) replace(found map[string]*unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kinds {
		if k.read == nil {
			continue
		}
		for key, was := range s.objects[k] {
			if found[k.name+" "+key] == nil && was.GetLabels()[LabelMade] == "" {
				s.set(k, key, nil)
			}
		}
	}
	for _, o := range found {
		k, key := kindOf(o.GetAPIVersion(), o.GetKind()), o.GetNamespace()+"/"+o.GetName()
		if was := s.objects[k][key]; was != nil && was.Object["status"] != nil {
			o.Object["status"] = was.Object["status"]
		}
		s.set(k, key, o)
	}
}

// LabelMade is on what programs make of kinds that files have, and no file holds.
const LabelMade = "app.kubernetes.io/managed-by"

// restore reads what was kept.
func (s *Server) restore() error {
	text, err := os.ReadFile(s.o.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var kept []map[string]any
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w: move it away to begin with the files alone", s.o.State, err)
	}
	for _, content := range kept {
		o := &unstructured.Unstructured{Object: content}
		if k := kindOf(o.GetAPIVersion(), o.GetKind()); k != nil {
			s.objects[k][o.GetNamespace()+"/"+o.GetName()] = o
		}
	}
	return nil
}

// keep writes what is to be kept, if it has changed.
func (s *Server) keep() error {
	s.mu.Lock()
	dirty := s.dirty
	var all []*unstructured.Unstructured
	for _, k := range kinds {
		if k.kept && dirty {
			all = append(all, s.all(target{kind: k}, func(*unstructured.Unstructured) bool { return true })...)
		}
	}
	s.dirty = false
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
