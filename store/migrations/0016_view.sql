-- Written by store/internal/viewgen; never change a released migration.
-- The view data decodes the chunks (docs/format.md) into the paper's twelve columns,
-- in three quarters to half of the time that 0013's took.

DROP VIEW data;
CREATE VIEW data AS
SELECT tid taskID, nm taskName, us user, (i00+ix0*x0+iy0*y0)*(v00+vy0*y0)+(i01+ix1*x1+iy1*y1)*(v01+vy1*y1)+(i02+ix2*x2+iy2*y2)*(v02+vy2*y2)+(i03+ix3*x3+iy3*y3)*(v03+vy3*y3)+(i04+ix4*x4+iy4*y4)*(v04+vy4*y4) power,
  ((i00+ix0*x0+iy0*y0)*e10+(i01+ix1*x1+iy1*y1)*e11+(i02+ix2*x2+iy2*y2)*e12+(i03+ix3*x3+iy3*y3)*e13+(i04+ix4*x4+iy4*y4)*e14)*g1 current1, ((i00+ix0*x0+iy0*y0)*e20+(i01+ix1*x1+iy1*y1)*e21+(i02+ix2*x2+iy2*y2)*e22+(i03+ix3*x3+iy3*y3)*e23+(i04+ix4*x4+iy4*y4)*e24)*g2 current2, ((i00+ix0*x0+iy0*y0)*e30+(i01+ix1*x1+iy1*y1)*e31+(i02+ix2*x2+iy2*y2)*e32+(i03+ix3*x3+iy3*y3)*e33+(i04+ix4*x4+iy4*y4)*e34)*g3 current3,
  g1*CASE WHEN e10+e11+e12+e13+e14=1 THEN (v00+vy0*y0)*e10+(v01+vy1*y1)*e11+(v02+vy2*y2)*e12+(v03+vy3*y3)*e13+(v04+vy4*y4)*e14 ELSE ((i00+ix0*x0+iy0*y0)*(v00+vy0*y0)*e10+(i01+ix1*x1+iy1*y1)*(v01+vy1*y1)*e11+(i02+ix2*x2+iy2*y2)*(v02+vy2*y2)*e12+(i03+ix3*x3+iy3*y3)*(v03+vy3*y3)*e13+(i04+ix4*x4+iy4*y4)*(v04+vy4*y4)*e14)/((i00+ix0*x0+iy0*y0)*e10+(i01+ix1*x1+iy1*y1)*e11+(i02+ix2*x2+iy2*y2)*e12+(i03+ix3*x3+iy3*y3)*e13+(i04+ix4*x4+iy4*y4)*e14) END voltage1,
  g2*CASE WHEN e20+e21+e22+e23+e24=1 THEN (v00+vy0*y0)*e20+(v01+vy1*y1)*e21+(v02+vy2*y2)*e22+(v03+vy3*y3)*e23+(v04+vy4*y4)*e24 ELSE ((i00+ix0*x0+iy0*y0)*(v00+vy0*y0)*e20+(i01+ix1*x1+iy1*y1)*(v01+vy1*y1)*e21+(i02+ix2*x2+iy2*y2)*(v02+vy2*y2)*e22+(i03+ix3*x3+iy3*y3)*(v03+vy3*y3)*e23+(i04+ix4*x4+iy4*y4)*(v04+vy4*y4)*e24)/((i00+ix0*x0+iy0*y0)*e20+(i01+ix1*x1+iy1*y1)*e21+(i02+ix2*x2+iy2*y2)*e22+(i03+ix3*x3+iy3*y3)*e23+(i04+ix4*x4+iy4*y4)*e24) END voltage2,
  g3*CASE WHEN e30+e31+e32+e33+e34=1 THEN (v00+vy0*y0)*e30+(v01+vy1*y1)*e31+(v02+vy2*y2)*e32+(v03+vy3*y3)*e33+(v04+vy4*y4)*e34 ELSE ((i00+ix0*x0+iy0*y0)*(v00+vy0*y0)*e30+(i01+ix1*x1+iy1*y1)*(v01+vy1*y1)*e31+(i02+ix2*x2+iy2*y2)*(v02+vy2*y2)*e32+(i03+ix3*x3+iy3*y3)*(v03+vy3*y3)*e33+(i04+ix4*x4+iy4*y4)*(v04+vy4*y4)*e34)/((i00+ix0*x0+iy0*y0)*e30+(i01+ix1*x1+iy1*y1)*e31+(i02+ix2*x2+iy2*y2)*e32+(i03+ix3*x3+iy3*y3)*e33+(i04+ix4*x4+iy4*y4)*e34) END voltage3,
  tm taskTime, CAST(seq AS INTEGER) seqNum FROM (
SELECT tid,
  nm,
  us,
  tm,
  f+s.i seq,
  i00,
  ix0,
  iy0,
  v00,
  vy0,
  e10,
  e20,
  e30,
  i01,
  ix1,
  iy1,
  v01,
  vy1,
  e11,
  e21,
  e31,
  i02,
  ix2,
  iy2,
  v02,
  vy2,
  e12,
  e22,
  e32,
  i03,
  ix3,
  iy3,
  v03,
  vy3,
  e13,
  e23,
  e33,
  i04,
  ix4,
  iy4,
  v04,
  vy4,
  e14,
  e24,
  e34,
  g1,
  g2,
  g3,
  bx0+CASE WHEN wx0<=9 THEN (qx0.v>>((s.i*wx0)&7))&mx0
    WHEN wx0<=25 THEN ((qx0.v|((SELECT v FROM _u16 WHERE b=substr(dx0,((s.i*wx0)>>3)+3,2))<<16))>>((s.i*wx0)&7))&mx0
    WHEN wx0<=32 THEN ((qx0.v|((SELECT v FROM _u16 WHERE b=substr(dx0,((s.i*wx0)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dx0,((s.i*wx0)>>3)+5,2))<<32))>>((s.i*wx0)&7))&mx0 ELSE 0 END x0,
  by0+CASE WHEN wy0<=9 THEN (qy0.v>>((s.i*wy0)&7))&my0
    WHEN wy0<=25 THEN ((qy0.v|((SELECT v FROM _u16 WHERE b=substr(dy0,((s.i*wy0)>>3)+3,2))<<16))>>((s.i*wy0)&7))&my0
    WHEN wy0<=32 THEN ((qy0.v|((SELECT v FROM _u16 WHERE b=substr(dy0,((s.i*wy0)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dy0,((s.i*wy0)>>3)+5,2))<<32))>>((s.i*wy0)&7))&my0 ELSE 0 END y0,
  bx1+CASE WHEN wx1<=9 THEN (qx1.v>>((s.i*wx1)&7))&mx1
    WHEN wx1<=25 THEN ((qx1.v|((SELECT v FROM _u16 WHERE b=substr(dx1,((s.i*wx1)>>3)+3,2))<<16))>>((s.i*wx1)&7))&mx1
    WHEN wx1<=32 THEN ((qx1.v|((SELECT v FROM _u16 WHERE b=substr(dx1,((s.i*wx1)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dx1,((s.i*wx1)>>3)+5,2))<<32))>>((s.i*wx1)&7))&mx1 ELSE 0 END x1,
  by1+CASE WHEN wy1<=9 THEN (qy1.v>>((s.i*wy1)&7))&my1
    WHEN wy1<=25 THEN ((qy1.v|((SELECT v FROM _u16 WHERE b=substr(dy1,((s.i*wy1)>>3)+3,2))<<16))>>((s.i*wy1)&7))&my1
    WHEN wy1<=32 THEN ((qy1.v|((SELECT v FROM _u16 WHERE b=substr(dy1,((s.i*wy1)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dy1,((s.i*wy1)>>3)+5,2))<<32))>>((s.i*wy1)&7))&my1 ELSE 0 END y1,
  bx2+CASE WHEN wx2<=9 THEN (qx2.v>>((s.i*wx2)&7))&mx2
    WHEN wx2<=25 THEN ((qx2.v|((SELECT v FROM _u16 WHERE b=substr(dx2,((s.i*wx2)>>3)+3,2))<<16))>>((s.i*wx2)&7))&mx2
    WHEN wx2<=32 THEN ((qx2.v|((SELECT v FROM _u16 WHERE b=substr(dx2,((s.i*wx2)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dx2,((s.i*wx2)>>3)+5,2))<<32))>>((s.i*wx2)&7))&mx2 ELSE 0 END x2,
  by2+CASE WHEN wy2<=9 THEN (qy2.v>>((s.i*wy2)&7))&my2
    WHEN wy2<=25 THEN ((qy2.v|((SELECT v FROM _u16 WHERE b=substr(dy2,((s.i*wy2)>>3)+3,2))<<16))>>((s.i*wy2)&7))&my2
    WHEN wy2<=32 THEN ((qy2.v|((SELECT v FROM _u16 WHERE b=substr(dy2,((s.i*wy2)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dy2,((s.i*wy2)>>3)+5,2))<<32))>>((s.i*wy2)&7))&my2 ELSE 0 END y2,
  bx3+CASE WHEN wx3<=9 THEN (qx3.v>>((s.i*wx3)&7))&mx3
    WHEN wx3<=25 THEN ((qx3.v|((SELECT v FROM _u16 WHERE b=substr(dx3,((s.i*wx3)>>3)+3,2))<<16))>>((s.i*wx3)&7))&mx3
    WHEN wx3<=32 THEN ((qx3.v|((SELECT v FROM _u16 WHERE b=substr(dx3,((s.i*wx3)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dx3,((s.i*wx3)>>3)+5,2))<<32))>>((s.i*wx3)&7))&mx3 ELSE 0 END x3,
  by3+CASE WHEN wy3<=9 THEN (qy3.v>>((s.i*wy3)&7))&my3
    WHEN wy3<=25 THEN ((qy3.v|((SELECT v FROM _u16 WHERE b=substr(dy3,((s.i*wy3)>>3)+3,2))<<16))>>((s.i*wy3)&7))&my3
    WHEN wy3<=32 THEN ((qy3.v|((SELECT v FROM _u16 WHERE b=substr(dy3,((s.i*wy3)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dy3,((s.i*wy3)>>3)+5,2))<<32))>>((s.i*wy3)&7))&my3 ELSE 0 END y3,
  bx4+CASE WHEN wx4<=9 THEN (qx4.v>>((s.i*wx4)&7))&mx4
    WHEN wx4<=25 THEN ((qx4.v|((SELECT v FROM _u16 WHERE b=substr(dx4,((s.i*wx4)>>3)+3,2))<<16))>>((s.i*wx4)&7))&mx4
    WHEN wx4<=32 THEN ((qx4.v|((SELECT v FROM _u16 WHERE b=substr(dx4,((s.i*wx4)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dx4,((s.i*wx4)>>3)+5,2))<<32))>>((s.i*wx4)&7))&mx4 ELSE 0 END x4,
  by4+CASE WHEN wy4<=9 THEN (qy4.v>>((s.i*wy4)&7))&my4
    WHEN wy4<=25 THEN ((qy4.v|((SELECT v FROM _u16 WHERE b=substr(dy4,((s.i*wy4)>>3)+3,2))<<16))>>((s.i*wy4)&7))&my4
    WHEN wy4<=32 THEN ((qy4.v|((SELECT v FROM _u16 WHERE b=substr(dy4,((s.i*wy4)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dy4,((s.i*wy4)>>3)+5,2))<<32))>>((s.i*wy4)&7))&my4 ELSE 0 END y4 FROM (
SELECT t.task_id tid,
  t.name nm,
  u.login us,
  t.launched tm,
  c.first_scan+256*p.i-coalesce(t.first_scan,(SELECT first_scan FROM chunk WHERE task_id=t.task_id ORDER BY chunk_no LIMIT 1)) f,
  max(0,coalesce(t.first_scan,0)-c.first_scan-256*p.i) lo,
  min(256,c.n-256*p.i,coalesce(t.end_scan-c.first_scan-256*p.i,256)) hi,
  coalesce(r0.i0,0.0) i00,
  coalesce(r0.ix,0.0) ix0,
  coalesce(r0.iy,0.0) iy0,
  coalesce(r0.v0,0.0) v00,
  coalesce(r0.vy,0.0) vy0,
  coalesce(r0.role=1,0) e10,
  coalesce(r0.role=2,0) e20,
  coalesce(r0.role=3,0) e30,
  coalesce(r1.i0,0.0) i01,
  coalesce(r1.ix,0.0) ix1,
  coalesce(r1.iy,0.0) iy1,
  coalesce(r1.v0,0.0) v01,
  coalesce(r1.vy,0.0) vy1,
  coalesce(r1.role=1,0) e11,
  coalesce(r1.role=2,0) e21,
  coalesce(r1.role=3,0) e31,
  coalesce(r2.i0,0.0) i02,
  coalesce(r2.ix,0.0) ix2,
  coalesce(r2.iy,0.0) iy2,
  coalesce(r2.v0,0.0) v02,
  coalesce(r2.vy,0.0) vy2,
  coalesce(r2.role=1,0) e12,
  coalesce(r2.role=2,0) e22,
  coalesce(r2.role=3,0) e32,
  coalesce(r3.i0,0.0) i03,
  coalesce(r3.ix,0.0) ix3,
  coalesce(r3.iy,0.0) iy3,
  coalesce(r3.v0,0.0) v03,
  coalesce(r3.vy,0.0) vy3,
  coalesce(r3.role=1,0) e13,
  coalesce(r3.role=2,0) e23,
  coalesce(r3.role=3,0) e33,
  coalesce(r4.i0,0.0) i04,
  coalesce(r4.ix,0.0) ix4,
  coalesce(r4.iy,0.0) iy4,
  coalesce(r4.v0,0.0) v04,
  coalesce(r4.vy,0.0) vy4,
  coalesce(r4.role=1,0) e14,
  coalesce(r4.role=2,0) e24,
  coalesce(r4.role=3,0) e34,
  (SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail WHERE calibration_id=k.calibration_id AND role=1) g1,
  (SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail WHERE calibration_id=k.calibration_id AND role=2) g2,
  (SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail WHERE calibration_id=k.calibration_id AND role=3) g3,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(x0.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(x0.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(x0.dir,8*p.i+3,2))>>15)<<32),0) bx0,
  (SELECT v FROM _u16 WHERE b=substr(x0.dir,8*p.i+5,2)) wx0,
  (1<<(SELECT v FROM _u16 WHERE b=substr(x0.dir,8*p.i+5,2)))-1 mx0,
  substr(x0.data,1+32*(SELECT v FROM _u16 WHERE b=substr(x0.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(x0.dir,8*p.i+5,2))+8) dx0,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(y0.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(y0.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(y0.dir,8*p.i+3,2))>>15)<<32),0) by0,
  (SELECT v FROM _u16 WHERE b=substr(y0.dir,8*p.i+5,2)) wy0,
  (1<<(SELECT v FROM _u16 WHERE b=substr(y0.dir,8*p.i+5,2)))-1 my0,
  substr(y0.data,1+32*(SELECT v FROM _u16 WHERE b=substr(y0.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(y0.dir,8*p.i+5,2))+8) dy0,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+3,2))>>15)<<32),0) bx1,
  (SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+5,2)) wx1,
  (1<<(SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+5,2)))-1 mx1,
  substr(x1.data,1+32*(SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(x1.dir,8*p.i+5,2))+8) dx1,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+3,2))>>15)<<32),0) by1,
  (SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+5,2)) wy1,
  (1<<(SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+5,2)))-1 my1,
  substr(y1.data,1+32*(SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(y1.dir,8*p.i+5,2))+8) dy1,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+3,2))>>15)<<32),0) bx2,
  (SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+5,2)) wx2,
  (1<<(SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+5,2)))-1 mx2,
  substr(x2.data,1+32*(SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(x2.dir,8*p.i+5,2))+8) dx2,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+3,2))>>15)<<32),0) by2,
  (SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+5,2)) wy2,
  (1<<(SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+5,2)))-1 my2,
  substr(y2.data,1+32*(SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(y2.dir,8*p.i+5,2))+8) dy2,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+3,2))>>15)<<32),0) bx3,
  (SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+5,2)) wx3,
  (1<<(SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+5,2)))-1 mx3,
  substr(x3.data,1+32*(SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(x3.dir,8*p.i+5,2))+8) dx3,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+3,2))>>15)<<32),0) by3,
  (SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+5,2)) wy3,
  (1<<(SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+5,2)))-1 my3,
  substr(y3.data,1+32*(SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(y3.dir,8*p.i+5,2))+8) dy3,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+3,2))>>15)<<32),0) bx4,
  (SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+5,2)) wx4,
  (1<<(SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+5,2)))-1 mx4,
  substr(x4.data,1+32*(SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(x4.dir,8*p.i+5,2))+8) dx4,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+1,2))|((SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+3,2))>>15)<<32),0) by4,
  (SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+5,2)) wy4,
  (1<<(SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+5,2)))-1 my4,
  substr(y4.data,1+32*(SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(y4.dir,8*p.i+5,2))+8) dy4
FROM task t CROSS JOIN user u ON u.user_id=t.user_id AND t.cold=0
CROSS JOIN calibration k ON k.calibration_id=t.calibration_id AND (SELECT count(*) FROM rail WHERE calibration_id=k.calibration_id)<=5
LEFT JOIN rail r0 ON r0.calibration_id=k.calibration_id AND r0.ordinal=0
LEFT JOIN rail r1 ON r1.calibration_id=k.calibration_id AND r1.ordinal=1
LEFT JOIN rail r2 ON r2.calibration_id=k.calibration_id AND r2.ordinal=2
LEFT JOIN rail r3 ON r3.calibration_id=k.calibration_id AND r3.ordinal=3
LEFT JOIN rail r4 ON r4.calibration_id=k.calibration_id AND r4.ordinal=4
CROSS JOIN chunk c ON c.task_id=t.task_id AND (t.has_result=0 OR (c.first_scan<t.end_scan AND c.first_scan+c.n>t.first_scan))
LEFT JOIN chunk_column x0 ON x0.task_id=c.task_id AND x0.chunk_no=c.chunk_no AND x0.col=r0.x
LEFT JOIN chunk_column y0 ON y0.task_id=c.task_id AND y0.chunk_no=c.chunk_no AND y0.col=r0.y
LEFT JOIN chunk_column x1 ON x1.task_id=c.task_id AND x1.chunk_no=c.chunk_no AND x1.col=r1.x
LEFT JOIN chunk_column y1 ON y1.task_id=c.task_id AND y1.chunk_no=c.chunk_no AND y1.col=r1.y
LEFT JOIN chunk_column x2 ON x2.task_id=c.task_id AND x2.chunk_no=c.chunk_no AND x2.col=r2.x
LEFT JOIN chunk_column y2 ON y2.task_id=c.task_id AND y2.chunk_no=c.chunk_no AND y2.col=r2.y
LEFT JOIN chunk_column x3 ON x3.task_id=c.task_id AND x3.chunk_no=c.chunk_no AND x3.col=r3.x
LEFT JOIN chunk_column y3 ON y3.task_id=c.task_id AND y3.chunk_no=c.chunk_no AND y3.col=r3.y
LEFT JOIN chunk_column x4 ON x4.task_id=c.task_id AND x4.chunk_no=c.chunk_no AND x4.col=r4.x
LEFT JOIN chunk_column y4 ON y4.task_id=c.task_id AND y4.chunk_no=c.chunk_no AND y4.col=r4.y
CROSS JOIN _seq p ON p.i<(c.n+255)/256 AND p.i>=max(0,coalesce((t.first_scan-c.first_scan)/256,0))
UNION ALL SELECT 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0 WHERE 0) CROSS JOIN _seq s ON s.i>=lo AND s.i<hi
LEFT JOIN _u16 qx0 ON qx0.b=substr(dx0,((s.i*wx0)>>3)+1,2)
LEFT JOIN _u16 qy0 ON qy0.b=substr(dy0,((s.i*wy0)>>3)+1,2)
LEFT JOIN _u16 qx1 ON qx1.b=substr(dx1,((s.i*wx1)>>3)+1,2)
LEFT JOIN _u16 qy1 ON qy1.b=substr(dy1,((s.i*wy1)>>3)+1,2)
LEFT JOIN _u16 qx2 ON qx2.b=substr(dx2,((s.i*wx2)>>3)+1,2)
LEFT JOIN _u16 qy2 ON qy2.b=substr(dy2,((s.i*wy2)>>3)+1,2)
LEFT JOIN _u16 qx3 ON qx3.b=substr(dx3,((s.i*wx3)>>3)+1,2)
LEFT JOIN _u16 qy3 ON qy3.b=substr(dy3,((s.i*wy3)>>3)+1,2)
LEFT JOIN _u16 qx4 ON qx4.b=substr(dx4,((s.i*wx4)>>3)+1,2)
LEFT JOIN _u16 qy4 ON qy4.b=substr(dy4,((s.i*wy4)>>3)+1,2)
UNION ALL SELECT tid, nm, us, tm, f+lo+e.key, coalesce(json_extract(e.value,'$[1]'),0.0),0,0,coalesce(json_extract(e.value,'$[4]'),0.0),0,1,0,0,coalesce(json_extract(e.value,'$[2]'),0.0),0,0,coalesce(json_extract(e.value,'$[5]'),0.0),0,0,1,0,coalesce(json_extract(e.value,'$[3]'),0.0),0,0,coalesce(json_extract(e.value,'$[6]'),0.0),0,0,0,1,json_extract(e.value,'$[0]')-coalesce(json_extract(e.value,'$[1]')*json_extract(e.value,'$[4]'),0.0)-coalesce(json_extract(e.value,'$[2]')*json_extract(e.value,'$[5]'),0.0)-coalesce(json_extract(e.value,'$[3]')*json_extract(e.value,'$[6]'),0.0),0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,g1,g2,g3,0,0,0,0,0,0,0,0,0,0 FROM (
SELECT tid,
  nm,
  us,
  tm,
  f,
  lo,
  g1,
  g2,
  g3,
  (SELECT json_group_array(json(q)) FROM (
SELECT json_array(sum(a*v),
  sum(CASE role WHEN 1 THEN a END),sum(CASE role WHEN 2 THEN a END),sum(CASE role WHEN 3 THEN a END),
  CASE count(CASE role WHEN 1 THEN 1 END) WHEN 1 THEN sum(CASE role WHEN 1 THEN v END) ELSE sum(CASE role WHEN 1 THEN a*v END)/sum(CASE role WHEN 1 THEN a END) END,
  CASE count(CASE role WHEN 2 THEN 1 END) WHEN 1 THEN sum(CASE role WHEN 2 THEN v END) ELSE sum(CASE role WHEN 2 THEN a*v END)/sum(CASE role WHEN 2 THEN a END) END,
  CASE count(CASE role WHEN 3 THEN 1 END) WHEN 1 THEN sum(CASE role WHEN 3 THEN v END) ELSE sum(CASE role WHEN 3 THEN a*v END)/sum(CASE role WHEN 3 THEN a END) END) q FROM (
SELECT i,
  role,
  i0+ix*x+iy*y a,
  v0+vy*y v
FROM (
SELECT s.i,
  role,
  i0,
  ix,
  iy,
  v0,
  vy,
  bx+CASE WHEN wx<=9 THEN (qx.v>>((s.i*wx)&7))&mx
    WHEN wx<=25 THEN ((qx.v|((SELECT v FROM _u16 WHERE b=substr(dx,((s.i*wx)>>3)+3,2))<<16))>>((s.i*wx)&7))&mx
    WHEN wx<=32 THEN ((qx.v|((SELECT v FROM _u16 WHERE b=substr(dx,((s.i*wx)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dx,((s.i*wx)>>3)+5,2))<<32))>>((s.i*wx)&7))&mx ELSE 0 END x,
  by+CASE WHEN wy<=9 THEN (qy.v>>((s.i*wy)&7))&my
    WHEN wy<=25 THEN ((qy.v|((SELECT v FROM _u16 WHERE b=substr(dy,((s.i*wy)>>3)+3,2))<<16))>>((s.i*wy)&7))&my
    WHEN wy<=32 THEN ((qy.v|((SELECT v FROM _u16 WHERE b=substr(dy,((s.i*wy)>>3)+3,2))<<16)|((SELECT v FROM _u16 WHERE b=substr(dy,((s.i*wy)>>3)+5,2))<<32))>>((s.i*wy)&7))&my ELSE 0 END y
FROM (
SELECT r.role,
  r.i0,
  r.ix,
  r.iy,
  r.v0,
  r.vy,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+1,2))|((SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+3,2))>>15)<<32),0) bx,
  (SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+5,2)) wx,
  (1<<(SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+5,2)))-1 mx,
  substr(x.data,1+32*(SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(x.dir,8*g.pi+5,2))+8) dx,
  coalesce(((SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+1,2))|((SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+3,2))<<16))-(((SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+3,2))>>15)<<32),0) by,
  (SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+5,2)) wy,
  (1<<(SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+5,2)))-1 my,
  substr(y.data,1+32*(SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+7,2)),32*(SELECT v FROM _u16 WHERE b=substr(y.dir,8*g.pi+5,2))+8) dy
FROM rail r CROSS JOIN chunk_column x ON x.task_id=g.tid AND x.chunk_no=g.cn AND x.col=r.x
LEFT JOIN chunk_column y ON y.task_id=g.tid AND y.chunk_no=g.cn AND y.col=r.y WHERE r.calibration_id=g.kid
UNION ALL SELECT 0,0,0,0,0,0,0,0,0,0,0,0,0,0 WHERE 0) CROSS JOIN _seq s ON s.i>=g.lo AND s.i<g.hi
LEFT JOIN _u16 qx ON qx.b=substr(dx,((s.i*wx)>>3)+1,2)
LEFT JOIN _u16 qy ON qy.b=substr(dy,((s.i*wy)>>3)+1,2)
UNION ALL SELECT 0,0,0,0,0,0,0,0,0 WHERE 0)
UNION ALL SELECT 0,0,0,0 WHERE 0) GROUP BY i ORDER BY i)) q
FROM (
SELECT t.task_id tid,
  t.name nm,
  u.login us,
  t.launched tm,
  c.first_scan+256*p.i-coalesce(t.first_scan,(SELECT first_scan FROM chunk WHERE task_id=t.task_id ORDER BY chunk_no LIMIT 1)) f,
  max(0,coalesce(t.first_scan,0)-c.first_scan-256*p.i) lo,
  min(256,c.n-256*p.i,coalesce(t.end_scan-c.first_scan-256*p.i,256)) hi,
  k.calibration_id kid,
  c.chunk_no cn,
  p.i pi,
  (SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail WHERE calibration_id=k.calibration_id AND role=1) g1,
  (SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail WHERE calibration_id=k.calibration_id AND role=2) g2,
  (SELECT CASE WHEN max(wiring=4)=0 THEN 1 END FROM rail WHERE calibration_id=k.calibration_id AND role=3) g3
FROM task t CROSS JOIN user u ON u.user_id=t.user_id AND t.cold=0
CROSS JOIN calibration k ON k.calibration_id=t.calibration_id AND (SELECT count(*) FROM rail WHERE calibration_id=k.calibration_id)>5
CROSS JOIN chunk c ON c.task_id=t.task_id AND (t.has_result=0 OR (c.first_scan<t.end_scan AND c.first_scan+c.n>t.first_scan))
CROSS JOIN _seq p ON p.i<(c.n+255)/256 AND p.i>=max(0,coalesce((t.first_scan-c.first_scan)/256,0))
UNION ALL SELECT 0,0,0,0,0,0,0,0,0,0,0,0,0 WHERE 0) g
UNION ALL SELECT 0,0,0,0,0,0,0,0,0,0 WHERE 0) b CROSS JOIN json_each(b.q) e
UNION ALL SELECT t.task_id, t.name, u.login, t.launched, NULL, NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL FROM task t CROSS JOIN user u ON u.user_id=t.user_id WHERE t.cold=1);
