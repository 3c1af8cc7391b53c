package inventory

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// Why a file was not read.
var (
	errNotRegular = errors.New("it is not a regular file")
	errTooLarge   = errors.New("it is larger than it may be")
	errNoOpenat2  = errors.New("the kernel, or a filter of system calls, does not allow openat2")
)

// root is a directory below which files are opened as a process sees them whose
// root directory it is: a symbolic link in it, absolute or with .., ends inside.
// What is below may belong to somebody hostile.
type root struct{ fd int }

// openRoot opens the directory. It follows path itself, which is /proc/PID/root or
// comes from the configuration.
func openRoot(dir int, path string) (*root, error) {
	fd, err := unix.Openat(dir, path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the root directory %s: %w", path, err)
	}
	return &root{fd}, nil
}

func (r *root) close() error { return unix.Close(r.fd) }

// maxRetries bounds how often a path is walked again because somebody renamed a
// directory of it meanwhile.
const maxRetries = 4

func (r *root) at(name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(r.fd, name, &how)
		switch {
		case err == nil:
			return fd, nil
		case errors.Is(err, unix.EAGAIN) && try < maxRetries:
			continue
		case errors.Is(err, unix.ENOSYS):
			err = errNoOpenat2
		}
		return -1, fmt.Errorf("open %s below a root directory: %w", name, err)
	}
}

// open opens a regular file. Of anything else, a pipe, a device, a link at the end
// of the path, not even the driver learns: it is looked at first through a handle
// that opens nothing, and then that same file is opened.
func (r *root) open(name string) (*os.File, error) {
	fd, err := r.at(name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("look at %s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("open %s: %w", name, errNotRegular)
	}
	f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, cause(err))
	}
	return f, nil
}

// has reports whether there is something at the path.
func (r *root) has(name string) bool {
	fd, err := r.at(name, unix.O_PATH|unix.O_NOFOLLOW)
	return err == nil && unix.Close(fd) == nil
}

// base returns the name of the file that all links at the path lead to in the end.
func (r *root) base(name string) (string, error) {
	fd, err := r.at(name, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	target, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", fmt.Errorf("find what %s leads to: %w", name, cause(err))
	}
	return path.Base(target), nil
}

// cause leaves out the path of the handle, which tells nobody anything.
func cause(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

// read returns a regular file of at most limit bytes.
func (r *root) read(name string, limit int64) ([]byte, error) {
	content, err := r.begin(name, limit+1)
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("read %s: %w", name, errTooLarge)
	}
	return content, err
}

// begin returns what a regular file begins with.
func (r *root) begin(name string, limit int64) (content []byte, err error) {
	f, err := r.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if content, err = io.ReadAll(io.LimitReader(f, limit)); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, cause(err))
	}
	return content, nil
}

// list returns the names in a directory, at most so many of them.
func (r *root) list(name string, most int) (names []string, err error) {
	fd, err := r.at(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer func() { err = errors.Join(err, f.Close()) }()
	if names, err = f.Readdirnames(most); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list %s: %w", name, cause(err))
	}
	return names, nil
}
