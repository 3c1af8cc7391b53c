package movement

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"gpuvigil/collector/proc"
)

// The controllers whose files are read. With the unified hierarchy they all have one
// directory.
const (
	blockController  = "blkio"
	usageController  = "cpuacct"
	quotaController  = "cpu"
	memoryController = "memory"
)

var controllers = []string{blockController, usageController, quotaController, memoryController}

// cgroups is where control groups are mounted.
type cgroups struct {
	root    *os.Root
	unified bool
}

func openCgroups(dir string) (*cgroups, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the control groups: %w: name the host's /sys with host.sysfs in the configuration", err)
	}
	_, err = root.Stat("cgroup.controllers")
	return &cgroups{root: root, unified: err == nil}, nil
}

// group is a control group of an owner: the owner's own directory, and below it that
// of a process. They are relative to the mount point.
type group struct{ own, leaf string }

// parseGroups returns the path of a process's group for each controller, from its
// cgroup file. With the unified hierarchy it is the same for all.
func parseGroups(unified bool, each func(func(string) error) error) (map[string]string, error) {
	paths := map[string]string{}
	err := each(func(line string) error {
		fields := strings.SplitN(line, ":", 3) // a path may hold colons
		if len(fields) < 3 || !strings.HasPrefix(fields[2], "/") {
			return nil
		}
		p := strings.TrimSuffix(fields[2], " (deleted)")
		for _, c := range controllers {
			if unified && fields[0] == "0" && fields[1] == "" || !unified && slices.Contains(strings.Split(fields[1], ","), c) {
				paths[c] = p
			}
		}
		return nil
	})
	return paths, err
}

func (s *scene) lookAtGroups(o *owned, dir *proc.Dir) {
	if s.cgroups == nil {
		return
	}
	paths, err := parseGroups(s.cgroups.unified, func(f func(string) error) error {
		_, err := read(dir, "cgroup", smallFile, f)
		return err
	})
	if err != nil {
		failed("cgroup", err)
		return
	}
	for controller, p := range paths {
		own := ownGroup(o.owner.Kind, p)
		if own == "" {
			continue
		}
		prefix, ok := s.cgroups.locate(controller, own)
		if !ok {
			continue
		}
		g := group{own: path.Join(prefix, inside(own)), leaf: path.Join(prefix, inside(p))}
		if !slices.Contains(o.groups[controller], g) {
			o.groups[controller] = append(o.groups[controller], g)
		}
	}
}

const hex64 = `[0-9a-f]{64}`

// The names of the directories that are one owner's, by kind. A pod's uid has
// underscores with the systemd driver and is a plain hash for a static pod.
var ownNames = map[string]*regexp.Regexp{
	"pod":       regexp.MustCompile(`(^|-)pod([0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(\.slice)?$`),
	"job":       regexp.MustCompile(`^job_[0-9]+$`),
	"container": regexp.MustCompile(`(^|-)` + hex64 + `(\.scope)?$|^lxc\.payload\.|^machine-.*\.scope$`),
	"service":   regexp.MustCompile(`\.service$`),
	"user":      regexp.MustCompile(`^user-[0-9]+\.slice$`),
}

// ownGroup returns the deepest directory of the path that is an owner's of the kind,
// empty if there is none: a pod's and not its container's, a job's and not its
// step's.
func ownGroup(kind, p string) string {
	name := ownNames[kind]
	if name == nil {
		return ""
	}
	for p != "" {
		at := strings.LastIndexByte(p, '/')
		if name.MatchString(p[at+1:]) {
			return p
		}
		p = p[:max(at, 0)]
	}
	return ""
}

// inside returns the path without what leads out of the directory that it is in: a
// reader in a control group of its own sees others as /../../name.
func inside(p string) string {
	for {
		p = strings.TrimPrefix(p, "/")
		rest, ok := strings.CutPrefix(p, "..")
		if !ok || rest != "" && rest[0] != '/' {
			return p
		}
		p = rest
	}
}

// parents are where pods and containers are, for a path that does not say it.
var parents = []string{
	"", "kubepods.slice", "kubepods.slice/kubepods-burstable.slice", "kubepods.slice/kubepods-besteffort.slice",
	"kubepods", "kubepods/burstable", "kubepods/besteffort", "system.slice", "docker",
}

// locate returns the directory below the mount point that the group's path begins in.
func (c *cgroups) locate(controller, p string) (prefix string, ok bool) {
	mount := ""
	if !c.unified {
		mount = controller
	}
	from := parents[:1]
	if strings.HasPrefix(p, "/..") {
		from = parents
	}
	for _, parent := range from {
		if _, err := c.root.Stat(path.Join(mount, parent, inside(p))); err == nil {
			return path.Join(mount, parent), true
		} else if !errors.Is(err, fs.ErrNotExist) {
			failed("cgroup", err)
		}
	}
	return "", false
}

// ownGroups returns the owner's own directories for a controller, none of them within
// another; or why there are none to be told.
func (s *scene) ownGroups(o *owned, controller string) (dirs []string, caveat string) {
	for _, g := range o.groups[controller] {
		dirs = append(dirs, g.own)
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	// In order, a directory comes after the one that it is in.
	outer := dirs[:0]
	for _, d := range dirs {
		if !slices.ContainsFunc(outer, func(o string) bool { return within(d, o) }) {
			outer = append(outer, d)
		}
	}
	if len(outer) == 0 {
		return nil, "no_cgroup"
	}
	for _, other := range s.owners {
		if other == o {
			continue
		}
		for _, g := range other.groups[controller] {
			if slices.ContainsFunc(outer, func(d string) bool { return within(g.own, d) }) {
				return nil, "shared_cgroup"
			}
		}
	}
	return outer, ""
}

// leaves returns the directories from the owner's down to those of its processes.
func leaves(groups []group) []string {
	var dirs []string
	for _, g := range groups {
		for d := g.leaf; within(d, g.own); d = path.Dir(d) {
			if !slices.Contains(dirs, d) {
				dirs = append(dirs, d)
			}
		}
	}
	slices.Sort(dirs)
	return dirs
}

func within(d, outer string) bool { return d == outer || strings.HasPrefix(d, outer+"/") }

// groupRead reads one file of a group. It counts and returns why it could not; a file
// that is not there belongs to a controller that is off.
func (s *scene) groupRead(dir, file string, f func(string) error) (reason string) {
	_, err := readLines(s.cgroups.root, path.Join(dir, file), smallFile, f)
	if err == nil {
		return ""
	}
	if reason = failed(file, err); reason == reasonGone {
		reason = "no_controller"
	}
	return reason
}

// groupInode tells a group from a later one of the same name.
func (s *scene) groupInode(dir string) uint64 {
	info, err := s.cgroups.root.Stat(dir)
	if err != nil {
		failed("cgroup", err)
		return 0
	}
	return inodeOf(info)
}
