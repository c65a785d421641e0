package kubelet

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/fieldpath"
	"sigs.k8s.io/yaml"
)

// content is what a volume shows: files by their path in it.
type content map[string][]byte

func (p *pod) volumeDir(name string) string { return filepath.Join(p.dir, "volumes", name) }

// mount makes all volumes what they should be now.
func (p *pod) mount(ctx context.Context) error {
	object := p.object()
	for i := range object.Spec.Volumes {
		v := &object.Spec.Volumes[i]
		dir := p.volumeDir(v.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if v.EmptyDir != nil {
			continue
		}
		files, err := p.content(ctx, object, v)
		if err == nil {
			err = show(dir, files)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	return p.writeKubeconfig(object)
}

// content reads what a volume should show.
func (p *pod) content(ctx context.Context, object *corev1.Pod, v *corev1.Volume) (content, error) {
	switch {
	case v.ConfigMap != nil:
		return p.configMap(ctx, object.Namespace, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.Secret != nil:
		return p.secret(ctx, object.Namespace, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.DownwardAPI != nil:
		return downward(object, v.DownwardAPI.Items)
	}
	all := content{}
	for i := range v.Projected.Sources {
		files, err := p.source(ctx, object, v, &v.Projected.Sources[i])
		if err != nil {
			return nil, err
		}
		maps.Copy(all, files)
	}
	return all, nil
}

// source reads one source of a projected volume.
func (p *pod) source(ctx context.Context, object *corev1.Pod, v *corev1.Volume,
	s *corev1.VolumeProjection,
) (content, error) {
	switch {
	case s.ConfigMap != nil:
		return p.configMap(ctx, object.Namespace, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
	case s.Secret != nil:
		return p.secret(ctx, object.Namespace, s.Secret.Name, s.Secret.Items, s.Secret.Optional)
	case s.DownwardAPI != nil:
		return downward(object, s.DownwardAPI.Items)
	}
	token, err := p.token(ctx, object, s.ServiceAccountToken,
		filepath.Join(p.volumeDir(v.Name), s.ServiceAccountToken.Path))
	return content{s.ServiceAccountToken.Path: token}, err
}

func (p *pod) configMap(ctx context.Context, namespace, name string, items []corev1.KeyToPath,
	optional *bool,
) (content, error) {
	found, err := p.kubelet.Client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := content{}
	for key, text := range found.Data {
		all[key] = p.withKubeconfig([]byte(text))
	}
	maps.Copy(all, found.BinaryData)
	return all.only(items, optional)
}

func (p *pod) secret(ctx context.Context, namespace, name string, items []corev1.KeyToPath,
	optional *bool,
) (content, error) {
	found, err := p.kubelet.Client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return content(found.Data).only(items, optional)
}

// only chooses and renames keys; no items mean all keys.
func (c content) only(items []corev1.KeyToPath, optional *bool) (content, error) {
	if len(items) == 0 {
		return c, nil
	}
	chosen := content{}
	for _, i := range items {
		value, ok := c[i.Key]
		if !ok && (optional == nil || !*optional) {
			return nil, fmt.Errorf("there is no key %q", i.Key)
		}
		if ok {
			chosen[i.Path] = value
		}
	}
	return chosen, nil
}

func downward(object *corev1.Pod, items []corev1.DownwardAPIVolumeFile) (content, error) {
	files := content{}
	for _, i := range items {
		if i.FieldRef == nil {
			return nil, fmt.Errorf("%s: only fieldRef is supported", i.Path)
		}
		value, err := fieldpath.ExtractFieldPathAsString(object, i.FieldRef.FieldPath)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.Path, err)
		}
		files[i.Path] = []byte(value)
	}
	return files, nil
}

// show writes files that have changed, by rename, and removes those that are not wanted any more.
func show(dir string, files content) error {
	for name, text := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("%q leads out of the volume", name)
		}
		path := filepath.Join(dir, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
			continue
		}
		if err := replace(path, text); err != nil {
			return err
		}
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if _, wanted := files[name]; wanted {
			return nil
		}
		return os.Remove(path)
	})
}

// replace writes a file that nobody ever sees half of.
func replace(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(path, text, 0o600)
}

// withKubeconfig gives a configuration of kube-scheduler the pod's kubeconfig, unless it names one: kube-scheduler does
// not look at $KUBECONFIG. Other files stay as they are.
func (p *pod) withKubeconfig(text []byte) []byte {
	if !bytes.Contains(text, []byte("KubeSchedulerConfiguration")) {
		return text
	}
	var config map[string]any
	if err := yaml.Unmarshal(text, &config); err != nil || config["kind"] != "KubeSchedulerConfiguration" {
		return text
	}
	connection, _ := config["clientConnection"].(map[string]any)
	if connection == nil {
		connection = map[string]any{}
	}
	if named, _ := connection["kubeconfig"].(string); named != "" {
		return text
	}
	connection["kubeconfig"] = p.kubeconfig()
	config["clientConnection"] = connection
	changed, err := yaml.Marshal(config)
	if err != nil {
		return text
	}
	return changed
}
