define internal void @row_exp(ptr %bufs, i64 %g) nounwind {
entry:
  %a.1 = getelementptr inbounds ptr, ptr %bufs, i64 0
  %x.2 = load ptr, ptr %a.1, align 8
  %a.3 = getelementptr inbounds ptr, ptr %bufs, i64 1
  %b.4 = load ptr, ptr %a.3, align 8
  %a.5 = getelementptr inbounds ptr, ptr %bufs, i64 2
  %y.6 = load ptr, ptr %a.5, align 8
  br label %for.7
for.7:
  %j.11 = phi i64 [ 0, %entry ], [ %j.12, %next.9 ]
  %t13 = icmp slt i64 %j.11, 64
  br i1 %t13, label %do.8, label %end.10
do.8:
  %t14 = mul i64 %g, 64
  %t15 = add i64 %t14, %j.11
  %a.16 = getelementptr inbounds float, ptr %x.2, i64 %t15
  %t17 = load float, ptr %a.16, align 4, !llvm.access.group !0
  %a.18 = getelementptr inbounds float, ptr %b.4, i64 %j.11
  %t19 = load float, ptr %a.18, align 4, !llvm.access.group !0
  %t20 = call float @llvm.fma.f32(float %t17, float 0x3FE0000000000000, float %t19)
  %t21 = call float @rlx.exp.f32(float %t20)
  %t22 = call float @llvm.maximum.f32(float %t21, float 0x3FF0000000000000)
  %a.23 = getelementptr inbounds float, ptr %y.6, i64 %t15
  store float %t22, ptr %a.23, align 4, !llvm.access.group !0
  br label %next.9
next.9:
  %j.12 = add nsw i64 %j.11, 1
  br label %for.7, !llvm.loop !4
end.10:
  ret void
}
