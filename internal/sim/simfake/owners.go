package simfake

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gpuvigil/collector"
)

// CgroupPath is where a process of the owner is in the tree of cgroups.
func CgroupPath(o collector.Owner) string {
	switch o.Kind {
	case "pod":
		return "/kubepods.slice/kubepods-pod" + PodUID(o) + ".slice/cri-containerd-" + digest("container", o.ID) + ".scope"
	case "job":
		return "/system.slice/slurmstepd.scope/job_" + strings.TrimPrefix(o.ID, "slurm/") + "/step_0/user/task_0"
	}
	return "/"
}

// PodUID is the uid of a pod, as one of a static pod.
func PodUID(o collector.Owner) string { return digest("pod", o.ID)[:32] }

func digest(what, id string) string {
	sum := sha256.Sum256([]byte(what + id))
	return hex.EncodeToString(sum[:])
}

// WriteOwners makes dir hold what says who has the part's GPUs: in pods a directory for
// each pod that ever was, as the kubelet makes them for logs, and in jobs a file for each
// GPU that a job has, as Slurm's prolog makes them. Both exist even if they are empty.
func WriteOwners(dir string, p *collector.Part) error {
	pods, jobs := filepath.Join(dir, "pods"), filepath.Join(dir, "jobs")
	errs := []error{os.MkdirAll(pods, 0o755), os.MkdirAll(jobs, 0o755)}
	for _, a := range p.Attributions {
		namespace, name, ok := strings.Cut(a.Owner.ID, "/")
		if a.Owner.Kind == "pod" && ok && !strings.Contains(name, "/") {
			errs = append(errs, os.MkdirAll(filepath.Join(pods, namespace+"_"+name+"_"+PodUID(a.Owner), "main"), 0o755))
		}
	}
	holders := map[string]string{}
	for _, a := range p.Allocations {
		if a.Owner.Kind == "job" {
			holders[a.UUID] = strings.TrimPrefix(a.Owner.ID, "slurm/") + "\n"
		}
	}
	for i := range p.GPUs {
		file := filepath.Join(jobs, strconv.Itoa(p.GPUs[i].Index))
		if job := holders[p.GPUs[i].UUID]; job != "" {
			errs = append(errs, os.WriteFile(file, []byte(job), 0o644))
		} else if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write who has the simulated GPUs: %w", err)
	}
	return nil
}
