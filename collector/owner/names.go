package owner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"gpuvigil/internal/text"
)

const (
	maxEntries    = 16384   // of a directory; a node runs a few hundred pods
	maxDockerFile = 1 << 20 // of a container's configuration
	maxLabels     = 256     // of a container
	maxName       = 200     // runes of a name

	// namesAge is how long a list of names is good while a name is missing in it: the
	// logs of a new pod are there before its processes.
	namesAge = 5 * time.Second
)

// names turns what is in cgroup paths into names, from what lies on the node: the
// names of the directories and links that the kubelet makes for logs, and Docker's own
// files. No log is opened.
type names struct {
	podLogs, containerLogs, docker string

	pods       map[string]pod    // by uid
	containers map[string]string // of pods: name by id
	read       time.Time         // when the lists were read
	err        error             // of that
}

// pod is what the kubelet calls a pod.
type pod struct {
	namespace, name string
	dir             string
}

// refreshUnless reads the lists again if what is looked for is not in them and they
// are not fresh.
func (n *names) refreshUnless(found bool, now time.Time) {
	if age := now.Sub(n.read); !found && (n.read.IsZero() || age < 0 || age >= namesAge) {
		n.refresh(now)
	}
}

// find returns what the kubelet calls the pod.
func (n *names) find(uid string, now time.Time) (pod, bool) {
	_, found := n.pods[uid]
	n.refreshUnless(found, now)
	p, found := n.pods[uid]
	return p, found
}

func (n *names) refresh(now time.Time) {
	n.read, n.err = now, nil
	n.pods, n.containers = map[string]pod{}, map[string]string{}
	n.err = errors.Join(n.list(n.podLogs, n.readPod), n.list(n.containerLogs, n.readContainer))
}

// list calls each with the names in a directory. One that does not exist, as on a node
// without Kubernetes, or that this user may not list, has none: then pods go by their
// uid, and doctor says so.
func (n *names) list(dir string, each func(string)) error {
	if dir == "" {
		return nil
	}
	entries, err := entriesOf(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	for _, e := range entries {
		each(e)
	}
	if err != nil {
		return fmt.Errorf("list the names of pods in %s: %w", dir, err)
	}
	return nil
}

// entriesOf returns the names in a directory, of too many those that come first.
func entriesOf(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.Readdirnames(maxEntries)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// readPod takes up NAMESPACE_POD_UID. Neither part may hold an underscore.
func (n *names) readPod(entry string) {
	parts := strings.Split(entry, "_")
	if len(parts) != 3 || !podUID.MatchString(parts[2]) || !dnsName(parts[0]) || !dnsName(parts[1]) {
		return
	}
	n.pods[parts[2]] = pod{namespace: parts[0], name: parts[1], dir: filepath.Join(n.podLogs, entry)}
}

// readContainer takes up POD_NAMESPACE_CONTAINER-ID.log.
func (n *names) readContainer(entry string) {
	m := containerLog.FindStringSubmatch(entry)
	if m != nil && dnsName(m[1]) {
		n.containers[m[2]] = m[1]
	}
}

var (
	podUID       = regexp.MustCompile(`^(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})$`)
	containerLog = regexp.MustCompile(`^[^_]+_[^_]+_([^_]+)-([0-9a-f]{64})\.log$`)
	dns          = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$`)
)

// dnsName reports whether s is a name as Kubernetes allows them.
func dnsName(s string) bool { return len(s) <= 253 && dns.MatchString(s) }

// container names a container of the pod: by the link to its log; if the pod has only
// one, by its directory; else by the first digits of its id.
func (n *names) container(p pod, id string, now time.Time) string {
	n.refreshUnless(n.containers[id] != "" || n.containerLogs == "", now)
	if name := n.containers[id]; name != "" {
		return name
	}
	if p.dir != "" {
		if entries, err := entriesOf(p.dir); err == nil && len(entries) == 1 && dnsName(entries[0]) {
			return entries[0]
		}
	}
	return short(id)
}

// short is a container's id as runtimes show it: its first 12 digits.
func short(id string) string {
	if containerSegment.MatchString(id) {
		return id[:12]
	}
	return text.Clean(id, maxName)
}

// dockerContainer is what Docker says of a container of its own.
type dockerContainer struct {
	name   string
	labels map[string]string
}

// dockerName reads a container's name and labels from Docker's files. The name is empty
// if Docker does not know it.
func (n *names) dockerName(id string) (dockerContainer, error) {
	if n.docker == "" || !containerSegment.MatchString(id) {
		return dockerContainer{}, nil
	}
	path := filepath.Join(n.docker, id, "config.v2.json")
	content, err := readRegular(path, maxDockerFile)
	if errors.Is(err, fs.ErrNotExist) {
		return dockerContainer{}, nil
	}
	var c dockerContainer
	if err == nil {
		c, err = parseDocker(content)
	}
	if err != nil {
		return c, fmt.Errorf("read what Docker calls container %s from %s: %w", id[:12], path, err)
	}
	return c, nil
}

func parseDocker(content string) (dockerContainer, error) {
	var file struct {
		Name   string
		Config struct{ Labels map[string]string }
	}
	if err := json.Unmarshal([]byte(content), &file); err != nil {
		return dockerContainer{}, errors.New("it is not the JSON that Docker writes")
	}
	c := dockerContainer{name: text.Clean(strings.TrimPrefix(file.Name, "/"), maxName)}
	if len(file.Config.Labels) <= maxLabels {
		c.labels = file.Config.Labels
	}
	return c, nil
}

// readRegular reads a file of at most limit bytes. What is no regular file is opened
// without waiting for it and not read: a pipe would keep the reader, a device would
// never end.
func readRegular(path string, limit int64) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file")
	}
	return readBounded(f, limit)
}
