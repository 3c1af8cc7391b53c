package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"gpuvigil/internal/text"
)

// maxContainer bounds the file in which an engine describes a container.
const maxContainer = 4 << 20

// image is the image that a container was made from.
type image struct{ name, digest string }

// container matches the id of a container in the path of its control group.
var container = regexp.MustCompile(`(?:^|[^0-9a-f])([0-9a-f]{64})(?:[^0-9a-f]|$)`)

// containerOf returns the last container's id in the text of /proc/PID/cgroup.
func containerOf(cgroup string) string {
	all := container.FindAllStringSubmatch(cgroup, -1)
	if all == nil {
		return ""
	}
	return all[len(all)-1][1]
}

// description is what is read of a container's: nothing but the image. The files
// also hold the environment, with whatever secrets are in it.
type description struct {
	// Docker's config.v2.json.
	Config struct{ Image string }
	Image  string
	// The OCI runtime's config.json.
	Annotations map[string]string `json:"annotations"`
}

// places are where the engines keep a container's description.
var places = []string{
	"/var/lib/docker/containers/%s/config.v2.json",
	"/run/containerd/io.containerd.runtime.v2.task/k8s.io/%s/config.json",
	"/run/containerd/io.containerd.runtime.v2.task/default/%s/config.json",
	"/run/containers/storage/overlay-containers/%s/userdata/config.json",
	"/var/lib/containers/storage/overlay-containers/%s/userdata/config.json",
}

// imageOf finds what the container was made from, below the node's root directory.
// The error says what could have told and may not be read.
func imageOf(node *root, id string) (image, error) {
	var denied error
	for _, place := range places {
		content, err := node.read(fmt.Sprintf(place, id), maxContainer)
		switch {
		case err == nil:
			if i := parseContainer(content); i.name != "" {
				return i, nil
			}
		case errors.Is(err, fs.ErrPermission) && denied == nil:
			denied = fmt.Errorf("%s: %w", path.Dir(path.Dir(place)), fs.ErrPermission)
		case errors.Is(err, errNoOpenat2):
			return image{}, err
		}
	}
	return image{}, denied
}

// parseContainer reads an engine's description of a container.
func parseContainer(content []byte) image {
	var d description
	if err := json.Unmarshal(content, &d); err != nil {
		return image{}
	}
	i := image{name: d.Config.Image}
	if strings.HasPrefix(d.Image, "sha256:") {
		i.digest = d.Image
	}
	for _, key := range []string{"io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName", "io.kubernetes.cri-o.Image"} {
		if i.name == "" {
			i.name = d.Annotations[key]
		}
	}
	if name, digest, ok := strings.Cut(i.name, "@"); ok {
		i.name, i.digest = name, digest
	}
	i.name, i.digest = text.Clean(i.name, maxShown), text.Clean(i.digest, maxShown)
	return i
}
