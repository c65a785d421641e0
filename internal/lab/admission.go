package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/charts"
	"github.com/kubenergy/kubenergy/deploy"
)

// AdmitHolds installs the shipped admission policy that suspends Jobs with an allowed delay, and its prerequisites:
// our CRDs, and an EnergyPolicy in mode enforce. It returns when the policy is effective, which takes the API
// server a second or two.
func (c *Cluster) AdmitHolds(ctx context.Context) error {
	if err := c.AddKinds(ctx); err != nil {
		return err
	}
	enforce := fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s}}
---
{apiVersion: %s, kind: EnergyPolicy, metadata: {name: default, namespace: %[1]s}, spec: {mode: %[3]s}}`,
		v1alpha1.SystemNamespace, v1alpha1.GroupVersion, v1alpha1.ModeEnforce)
	for _, manifests := range [][]byte{[]byte(enforce), deploy.HoldAdmission} {
		if err := c.Apply(ctx, manifests, nil); err != nil {
			return fmt.Errorf("admitting holds: %w", err)
		}
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true,
		func(ctx context.Context) (bool, error) {
			return admitsHolds(ctx, c.client)
		})
	if err != nil {
		return fmt.Errorf("waiting for the hold policy to become effective: %w", err)
	}
	return nil
}

// AddKinds creates our CRDs and returns when they are established.
func (c *Cluster) AddKinds(ctx context.Context) error {
	client, err := apiextensions.NewForConfig(c.config)
	if err != nil {
		return err
	}
	for _, document := range charts.CRDs() {
		crds, err := objects(document)
		if err != nil {
			return fmt.Errorf("decoding our CRDs: %w", err)
		}
		for _, crd := range crds {
			if err := c.create(ctx, crd); err != nil {
				return err
			}
			err := wait.PollUntilContextTimeout(ctx, pollInterval, readyTimeout, true,
				func(ctx context.Context) (bool, error) {
					got, err := client.CustomResourceDefinitions().Get(ctx, crd.GetName(), metav1.GetOptions{})
					return apihelpers.IsCRDConditionTrue(got, apiextensionsv1.Established), err
				})
			if err != nil {
				return fmt.Errorf("waiting for the CRD %s to be established: %w", crd.GetName(), err)
			}
		}
	}
	return nil
}

// objects decodes a file of manifests.
func objects(text []byte) ([]*unstructured.Unstructured, error) {
	reader := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var all []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		switch err := reader.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}

// Apply creates the objects in a file of manifests, except objects selected by skip. Existing objects are not changed.
func (c *Cluster) Apply(ctx context.Context, manifests []byte, skip func(*unstructured.Unstructured) bool) error {
	all, err := objects(manifests)
	if err != nil {
		return err
	}
	for _, object := range all {
		if skip != nil && skip(object) {
			continue
		}
		if err := c.create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// create creates an object unless it exists. It guesses the resource from the kind, which is sufficient for the
// kinds used here.
func (c *Cluster) create(ctx context.Context, object *unstructured.Unstructured) error {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return err
	}
	kind := object.GroupVersionKind()
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	_, err = client.Resource(resource).Namespace(object.GetNamespace()).Create(ctx, object,
		metav1.CreateOptions{FieldValidation: "Strict"})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the %s %s: %w", strings.ToLower(kind.Kind), object.GetName(), err)
	}
	return nil
}

// admitsHolds reports whether the API server would suspend a Job with an allowed delay, using a dry run.
func admitsHolds(ctx context.Context, client kubernetes.Interface) (bool, error) {
	probe := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: "probe", Namespace: metav1.NamespaceDefault,
			Annotations: map[string]string{v1alpha1.AnnotationAllowedDelay: "1h"},
		},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "probe", Image: "probe"}},
		}}},
	}
	got, err := client.BatchV1().Jobs(probe.Namespace).Create(ctx, probe,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err == nil && ptr.Deref(got.Spec.Suspend, false), err
}
