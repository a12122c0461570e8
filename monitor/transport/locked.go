package transport

import (
	"context"
	"fmt"
	"sync"
)

// lockedConn is a Conn that holds the lock of its address.
type lockedConn struct {
	Conn
	lock *portLock
	once sync.Once
}

func dialLocked(ctx context.Context, target string) (Conn, error) {
	lock, err := lockAddress(target)
	if err != nil {
		return nil, fmt.Errorf("open tcp:%s: %w", target, err)
	}
	c, err := dialTCP(ctx, target)
	if err != nil {
		lock.release()
		return nil, err
	}
	return &lockedConn{Conn: c, lock: lock}, nil
}

func (l *lockedConn) Close() error {
	err := l.Conn.Close()
	l.once.Do(l.lock.release)
	return err
}
