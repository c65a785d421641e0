package kubelet

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// content contains the files of a volume by path.
type content = map[string]util.FileProjection

// fileMode is the mode of all files, regardless of the pod, because they belong to the current user.
const fileMode = 0o600

func file(text []byte) util.FileProjection { return util.FileProjection{Data: text, Mode: fileMode} }

func (p *pod) volumeDir(name string) string { return filepath.Join(p.dir, "volumes", name) }

// mount updates all volumes to their current content.
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

// content returns the current content of a volume.
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
		files, err := p.source(ctx, object, &v.Projected.Sources[i])
		if err != nil {
			return nil, err
		}
		maps.Copy(all, files)
	}
	return all, nil
}

// source returns the files of one source of a projected volume.
func (p *pod) source(ctx context.Context, object *corev1.Pod, s *corev1.VolumeProjection) (content, error) {
	switch {
	case s.ConfigMap != nil:
		return p.configMap(ctx, object.Namespace, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
	case s.Secret != nil:
		return p.secret(ctx, object.Namespace, s.Secret.Name, s.Secret.Items, s.Secret.Optional)
	case s.DownwardAPI != nil:
		return downward(object, s.DownwardAPI.Items)
	}
	token, err := p.token(object, s.ServiceAccountToken)
	return content{s.ServiceAccountToken.Path: file(token)}, err
}

func (p *pod) configMap(ctx context.Context, namespace, name string, items []corev1.KeyToPath,
	optional *bool,
) (content, error) {
	found, err := p.kubelet.Client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !(apierrors.IsNotFound(err) && ptr.Deref(optional, false)) {
		return nil, err
	}
	for key, text := range found.Data {
		found.Data[key] = string(p.withKubeconfig([]byte(text)))
	}
	return configmap.MakePayload(items, found, ptr.To[int32](fileMode), ptr.Deref(optional, false))
}

func (p *pod) secret(ctx context.Context, namespace, name string, items []corev1.KeyToPath,
	optional *bool,
) (content, error) {
	found, err := p.kubelet.Client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !(apierrors.IsNotFound(err) && ptr.Deref(optional, false)) {
		return nil, err
	}
	return secret.MakePayload(items, found, ptr.To[int32](fileMode), ptr.Deref(optional, false))
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
		files[i.Path] = file([]byte(value))
	}
	return files, nil
}

// show atomically replaces the files in a directory.
func show(dir string, files content) error {
	w, err := util.NewAtomicWriter(dir, "lab")
	if err != nil {
		return err
	}
	return w.Write(files, nil)
}

// withKubeconfig sets the pod's kubeconfig in a configuration of kube-scheduler, which does not use $KUBECONFIG,
// unless the configuration already has one. Other files are returned unchanged.
func (p *pod) withKubeconfig(text []byte) []byte {
	if !bytes.Contains(text, []byte("KubeSchedulerConfiguration")) {
		return text
	}
	var config map[string]any
	if err := yaml.Unmarshal(text, &config); err != nil || config["kind"] != "KubeSchedulerConfiguration" {
		return text
	}
	if set, err := SetKubeconfig(config, p.kubeconfig()); err != nil || !set {
		return text
	}
	changed, err := yaml.Marshal(config)
	if err != nil {
		return text
	}
	return changed
}

// SetKubeconfig sets the kubeconfig of a KubeSchedulerConfiguration unless it already has one.
func SetKubeconfig(config map[string]any, path string) (set bool, err error) {
	keys := []string{"clientConnection", "kubeconfig"}
	if named, _, _ := unstructured.NestedString(config, keys...); named != "" {
		return false, nil
	}
	if config[keys[0]] == nil { // the key may be present without a value
		delete(config, keys[0])
	}
	return true, unstructured.SetNestedField(config, path, keys...)
}
