//go:build cgo

package main

/*
#include "wattmark.h"
#include "power.h"
*/
import "C"

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/wattmark/wattmark/measure"
	"github.com/wattmark/wattmark/store"
)

// row is a sample as the view data shows it.
type row struct {
	task       int64
	name, user string
	v          [7]float64 // power, current1..3, voltage1..3
	at         string
	seq        int64
}

const columns = "taskID\ttaskName\tuser\tpower\tcurrent1\tcurrent2\tcurrent3\tvoltage1\tvoltage2\tvoltage3\t" +
	"taskTime\tseqNum\n"

// eachRow calls f with every sample that a condition selects, in order. The
// row is lent until f returns.
func eachRow(ctx context.Context, db *store.DB, where string, arg any, f func(*row) error) error {
	rows, err := db.SQL().QueryContext(ctx, `SELECT taskID, taskName, "user", power, current1, current2, current3,
		voltage1, voltage2, voltage3, taskTime, seqNum FROM data WHERE `+where+` ORDER BY taskID, seqNum`, arg)
	if err != nil {
		return fmt.Errorf("%w: %w", errDatabase, err)
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		var v [7]sql.NullFloat64
		if err := rows.Scan(&r.task, &r.name, &r.user, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &r.at,
			&r.seq); err != nil {
			return fmt.Errorf("%w: %w", errDatabase, err)
		}
		for i := range v {
			if r.v[i] = math.NaN(); v[i].Valid {
				r.v[i] = v[i].Float64
			}
		}
		if err := f(&r); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("%w: %w", errDatabase, err)
	}
	return nil
}

// put fills one of the program's records.
func (r *row) put(to *C.struct_record) {
	to.taskID, to.seqNum = C.int(r.task), C.int(r.seq)
	putText(&to.taskName[0], len(to.taskName), r.name)
	putText(&to.user[0], len(to.user), r.user)
	putText(&to.taskTime[0], len(to.taskTime), r.at)
	to.power = C.double(r.v[0])
	to.current1, to.current2, to.current3 = C.double(r.v[1]), C.double(r.v[2]), C.double(r.v[3])
	to.voltage1, to.voltage2, to.voltage3 = C.double(r.v[4]), C.double(r.v[5]), C.double(r.v[6])
}

// print appends the row's line.
func (r *row) print(b []byte) []byte {
	b = strconv.AppendInt(b, r.task, 10)
	b = append(append(b, '\t'), measure.Printable(r.name)...)
	b = append(append(b, '\t'), measure.Printable(r.user)...)
	for _, v := range r.v {
		b = append(b, '\t')
		if !math.IsNaN(v) {
			b = strconv.AppendFloat(b, v, 'g', 9, 64)
		}
	}
	b = append(append(b, '\t'), r.at...)
	b = strconv.AppendInt(append(b, '\t'), r.seq, 10)
	return append(b, '\n')
}

// withDB makes a call on the database that dbOpen opened.
func withDB(call string, text *C.char, n C.size_t, f func(ctx context.Context, db *store.DB) (int, error)) C.int {
	return ask(call, text, n, func() (int, error) {
		if papers.db == nil {
			return 0, fmt.Errorf("%w: call dbOpen first", errState)
		}
		out, err := f(context.Background(), papers.db)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errDatabase, err)
		}
		return out, nil
	})
}

//export wmgo_db_open
func wmgo_db_open(name, text *C.char, n C.size_t) C.int {
	return do("dbOpen", text, n, func() error {
		switch {
		case goText(name) == "":
			return fmt.Errorf("%w: no file is named", errArgument)
		case papers.db != nil:
			return fmt.Errorf("%w: %s is open; dbClose first", errState, papers.db.Path())
		}
		ctx := context.Background()
		db, err := openDatabase(ctx, goText(name))
		if errors.Is(err, store.ErrReadOnly) || errors.Is(err, store.ErrCannotOpen) {
			if read, only := store.OpenSource(ctx, goText(name)); only == nil {
				db, err = read, nil // deletions then fail: nothing may be written
			}
		}
		if err != nil {
			return err
		}
		papers.db = db
		return nil
	})
}

//export wmgo_db_close
func wmgo_db_close(text *C.char, n C.size_t) C.int {
	return withDB("dbClose", text, n, func(_ context.Context, db *store.DB) (int, error) {
		papers.db = nil
		return 0, db.Close()
	})
}

//export wmgo_db_read
func wmgo_db_read(id C.int, name, text *C.char, n C.size_t) C.int {
	return withDB("dbRead", text, n, func(ctx context.Context, db *store.DB) (int, error) {
		where, arg := "taskID=?", any(int64(id))
		if name != nil {
			where, arg = "taskName=?", C.GoString(name)
		} else if _, err := db.Task(ctx, store.TaskID(id)); err != nil {
			return 0, err
		}
		out := bufio.NewWriter(os.Stdout)
		count := 0
		_, _ = out.WriteString(columns) // Flush returns the error
		var line []byte
		err := eachRow(ctx, db, where, arg, func(r *row) error {
			line = r.print(line[:0])
			count++
			_, err := out.Write(line)
			return err
		})
		if err == nil {
			err = out.Flush()
		}
		return count, err
	})
}

//export wmgo_db_users
func wmgo_db_users(text *C.char, n C.size_t) C.int {
	return withDB("dbGetUser", text, n, func(ctx context.Context, db *store.DB) (int, error) {
		users, err := db.Users(ctx)
		for _, u := range users {
			if _, e := fmt.Println(u.User); e != nil {
				return 0, e
			}
		}
		return len(users), err
	})
}

//export wmgo_db_tasks
func wmgo_db_tasks(user, text *C.char, n C.size_t) C.int {
	return withDB("dbGetTaskByUser", text, n, func(ctx context.Context, db *store.DB) (int, error) {
		count := 0
		for before := store.TaskID(0); ; {
			tasks, err := db.Tasks(ctx, store.Query{User: goText(user), Before: before})
			if err != nil || len(tasks) == 0 {
				return count, err
			}
			for _, t := range tasks {
				if _, err := fmt.Printf("%d\t%s\t%s\n", t.ID, t.Name, t.Launched.UTC().Format(time.RFC3339Nano)); err != nil {
					return count, err
				}
				before = t.ID
			}
			count += len(tasks)
		}
	})
}

//export wmgo_db_delete
func wmgo_db_delete(by, id C.int, name, text *C.char, n C.size_t) C.int {
	return withDB("dbDelete", text, n, func(ctx context.Context, db *store.DB) (int, error) {
		var gone store.Deleted // pinned tasks stay
		var err error
		switch by {
		case 0:
			if err = db.DeleteTask(ctx, store.TaskID(id)); err == nil {
				gone.Tasks = 1
			}
		case 1:
			gone, err = db.DeleteByName(ctx, goText(name), store.DeleteOptions{})
		default:
			gone, err = db.DeleteByUser(ctx, goText(name), store.DeleteOptions{})
		}
		return int(gone.Tasks), err
	})
}
