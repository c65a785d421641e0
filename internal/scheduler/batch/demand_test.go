package batch

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestPlain(t *testing.T) {
	terms := []v1.PodAffinityTerm{{TopologyKey: v1.LabelHostname}}
	for name, tc := range map[string]struct {
		spec  v1.PodSpec
		plain bool
	}{
		"nothing":   {v1.PodSpec{}, true},
		"port":      {v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{{ContainerPort: 80}}}}}, true},
		"host port": {v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{{HostPort: 80}}}}}, false},
		"sidecar's": {v1.PodSpec{InitContainers: []v1.Container{{Ports: []v1.ContainerPort{{HostPort: 80}}}}}, false},
		"files":     {v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}}}, true},
		"a claim":   {v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}}}, false},
		"a device":  {v1.PodSpec{ResourceClaims: []v1.PodResourceClaim{{Name: "gpu"}}}, false},
		"spread":    {v1.PodSpec{TopologySpreadConstraints: []v1.TopologySpreadConstraint{{WhenUnsatisfiable: v1.DoNotSchedule}}}, false},
		"at will":   {v1.PodSpec{TopologySpreadConstraints: []v1.TopologySpreadConstraint{{WhenUnsatisfiable: v1.ScheduleAnyway}}}, true},
		"company":   {v1.PodSpec{Affinity: &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}}, false},
		"alone":     {v1.PodSpec{Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}}, false},
		"nodes":     {v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}}}, true},
		"member":    {v1.PodSpec{SchedulingGroup: &v1.PodSchedulingGroup{}}, false},
	} {
		if got := Plain(&v1.Pod{Spec: tc.spec}); got != tc.plain {
			t.Errorf("%s: %v", name, got)
		}
	}
}
